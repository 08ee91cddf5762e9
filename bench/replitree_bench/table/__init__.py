"""The workloads of a table whose parts are on the disks of its replicas; each module's docstring lists its keys.

Imports: `kit`.

Changes: with `docs/benchmarks.md`, when a key or what it measures changes.
"""
