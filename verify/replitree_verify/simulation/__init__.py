"""The simulator: the production procedures on a virtual cluster, in virtual time, with faults drawn from a seed.

Read `options` (what a seed draws), `cluster` (time, coordination, links), `process` (threads), `clients`, `observer` (what
must hold), then `replitree_verify.simulate`.  A part of the seeds has its table in an object store: `store_options`,
`object_store`, `shared_life`, `shared_process`, `shared_checks`.

Imports: `traces`, `moving`, `shared_tables` and all that these may import.

Changes: with the pinned seeds: the same seed must give the same digest.
"""
