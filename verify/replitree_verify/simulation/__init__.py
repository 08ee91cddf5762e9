"""The simulator: the production procedures on a virtual cluster, in virtual time, with faults drawn from a seed.

Read `options` (what a seed draws), `cluster` (time, coordination, links), `process` (threads), `clients`, `observer` (what
must hold), then `simulate`.  A part of the seeds has its table in an object store:
`replitree_verify.simulation.store`.

Imports: `traces` and all that it may import.

Changes: with the pinned seeds: the same seed must give the same digest.
"""
