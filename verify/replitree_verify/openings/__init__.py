"""The checker of openings: who may open a blob group with which members, and what becomes of one that has forgotten something.

It runs the production code: `tablet.group.openings` and `tablet.group.replacing` for those that open a group and the operator,
`tablet.group.admission.serve` for each member, `tablet.group.quorum.carry_out` in between.  `replitree_verify.tablets` explores
what a tablet does with members that forget nothing.

Imports: `tablets`, `engine.small_search`, `world.faults` and `world.kernel`.

Changes: with `replitree.tablet.group`; its counts are pinned.
"""
