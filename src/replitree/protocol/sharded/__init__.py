"""Sharded tables: which shard owns each bucket of rows.

Imports: `core` only.

Changes: the map is stored: a change needs a format number and frozen bytes in `tests/formats`.
"""
