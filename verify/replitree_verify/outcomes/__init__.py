"""What effects do, and every way in which they can end: the explorer's interpreter of effects.

`local` performs them inside a process, without faults; `branches` and `objects` have the ways in which they end with faults, of
coordination and the disk, and of the object store.  `effects` says which of these functions belong to an effect.

Imports: `rules`, `probes`, `process` and `world`.

Changes: with `replica/perform`, which must mean the same by an effect, and with every pinned count.
"""
