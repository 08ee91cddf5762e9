"""The checker of a lone place: one on an object store, the only member, which remembers an opening with what is asked first.

It runs the production code, `BlobStore` and all below it, once for every order in which the requests of two processes, a copy
that takes the place's place, and lost answers may come.

Imports: `engine.small_search` and `world.faults`.

Changes: with `BlobStore`; its counts are pinned.
"""
