"""Moves of buckets from one shard to another: how they begin, go on, turn back and end.

Imports: `core` to `sharded`.

Changes: with the models of `replitree_verify.moves`; every rule has a mutant that is caught.  `progress` has what is stored.
"""
