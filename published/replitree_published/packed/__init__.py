"""Packed models: whole states in one 64-bit word, searched at tens of millions of states per second.

These are the published models of the protocol (log cleaning, replication with merges, quorum inserts), as they were published
and in a second version with their defects mended.  They know nothing of our procedures: those are explored by
`replitree_verify.engine.explore`. What they give: the whole space of sizes that the procedures' explorer can't reach, and
figures that other checkers find too.

Reading path:  `model` (what a model is), `bits`, `models.truncate_log` (the simplest one), `plain` (the search, as plain
as it can be said), `kernels` and `search` (the same, compiled), `catalog` (the models by name).

A model's functions are plain Python of a small kind: integers, bits, loops over replicas.  `compiling` compiles them by numba
when that is installed (the extra `compiled`); without it `plain` runs them as they are, and finds the same.
"""
