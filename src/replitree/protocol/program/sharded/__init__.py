"""The stages of a replica whose table is a shard of a sharded one: joint inserts, and what they leave.

Imports: every room of the protocol.

Changes: with the models of `replitree_verify.joint`, which run these stages.
"""
