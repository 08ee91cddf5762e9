"""The explorer: every state of a model, nearest first, and what the search may leave out.

`explore` searches; `space` has the moves of a state, `checker` the invariants over it, `initial` the first state.  `steps`
works out what a thread does next, and joins steps that need no interleaving (`reduction`).  `ample` and `symmetry` leave states
out, with `futures`, `surroundings`, `footprints`, `resources`, `hidden` and `renaming` as their evidence.  `small_search` is
the one search of all models that need no reduction: those of shared storage, tablets, openings, lone places and leases;
`shared_tree` has what the models of several tables share.

Imports: `effects` and all that `effects` may import.

Changes: with every pinned count: a reduction that loses a state loses bugs.  `tests/verify/test_ample.py` and
`test_symmetry.py` compare verdicts with the plain search.
"""
