"""The checker of tablets: every order of messages, with crashes, lost answers and disks that come back late.

It runs the production code: `tablet.core.election.stand`, `tablet.group.quorum.carry_out`, the ledger of
`tablet.core.commit`, and `tablet.group.member.answer` for each member.  Messages between them are delivered in every
order, and late.

Read `model`, `state`, `space` (which steps there are), then `search`.  Two rooms: `models` and `invariants`.

Imports: `engine.small_search`, `engine.fingerprints`, `world.faults` and `world.kernel`.

Changes: with `replitree.tablet`; its counts are pinned.
"""
