"""The checker of openings: who may open a blob group with which members, and what becomes of one that has forgotten something.

It runs the production code: `tablet.openings` and `tablet.replacing` for those that open a group and the operator,
`tablet.admission.serve` for each member, `tablet.quorum.carry_out` in between.  `verify.tablets` explores what a tablet does
with members that forget nothing.
"""
