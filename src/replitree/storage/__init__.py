"""Rows and their files: types, definitions, and the parts of a table on a local disk.

Read `definition`, then `encode` (rows become files), then `disk` (files become parts).  Nothing here knows of coordination.
"""
