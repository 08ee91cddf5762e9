"""Rows and their files: types, definitions, and the parts of a table on a local disk.

Read `schema.definition`, then `parts.encode` (rows become files), then `disk.store` (files become parts).
Nothing here knows of coordination.
"""
