"""Uploads: files that clients put here, or into the object store, before one commit makes them an insert.

Imports: `kit` and `perform`.

Changes: freely.
"""
