"""The simulator of a table in an object store: the store, replicas that share objects in it, and parts that move to it.

`store_options` says what a seed draws, `object_store` is the store, `shared_process` and
`moving_process` have the threads, `shared_checks` and `moving_checks` what must hold at the end.

Imports: `simulation` and all that `simulation` may import.

Changes: with the pinned seeds: the same seed must give the same digest.
"""
