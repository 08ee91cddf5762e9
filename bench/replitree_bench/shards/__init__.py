"""The workloads of sharded tables: inserts and reads over shards, what kills leave, and joins without a shuffle.

Imports: `kit` and `table`.

Changes: with `docs/benchmarks.md`, when a key or what it measures changes.
"""
