"""The checker of moves: buckets go from one shard to another while rows come in, and commands change them.

It runs the product's procedures of moves and of joint inserts, and those that count and end quorums, in every order of their
steps.  What is left out of it stands in `model`.

Imports: `engine.shared_tree`, `engine.small_search`, `world.faults` and `world.kernel`.

Changes: with `protocol.sharded.moves`; its counts are pinned.
"""
