"""Changes: deletes, updates, columns, merges, partitions, detached parts and storage.

Imports: `transport` to `read`.

Changes: freely.
"""
