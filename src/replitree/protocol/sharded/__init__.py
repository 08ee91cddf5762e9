"""Sharded tables: which shard owns each bucket of rows, and inserts that append to the logs of several shards in one commit.

Imports: `core` to `insert`.

Changes: joint inserts, with their models in `replitree_verify.joint`; every rule has a mutant that is caught.  The map is
stored: a change needs a format number and frozen bytes in `tests/formats`.
"""
