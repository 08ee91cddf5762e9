"""The workloads of a table on an object store: reading, writing, and what a fetch moves.

Imports: `kit` and `table`.

Changes: with `docs/benchmarks.md`, when a key or what it measures changes.
"""
