"""The performers of effects on znodes: kazoo, or a tree in memory; and the embedded ZooKeeper.

Read `port` first (`stamped` adds transaction numbers), then `tree` (what a node is), `memory`, `zookeeper` with `session`
and `gathering` (requests of several threads), `embedded` with `supervise`.
"""
