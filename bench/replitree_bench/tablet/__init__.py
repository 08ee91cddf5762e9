"""The workloads of a tablet, on `directories` and on an object store (`store`), beside plain `loops`.

Imports: `kit`.

Changes: with `docs/benchmarks.md`, when a key or what it measures changes.
"""
