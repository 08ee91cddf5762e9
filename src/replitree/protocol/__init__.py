"""The replication protocol: pure procedures over effects, and the values that they write.

Nothing here performs anything.  Read `parts`, then `insert`, then `activate`, `pull`, `execute`, `start`.
"""
