"""Putting entries into the log: merges that a leader selects, commands of users, and the log's roll-over.

Imports: `core` to `execute`.

Changes: as `execute`; `select_merges` decides only what is worth a merge, and may be changed with its own tests.
"""
