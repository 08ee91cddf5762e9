"""Shares as files: what a table's parts consist of in an object store, and an inventory of it.

Imports: `files` to `rewrite`.

Changes: with the tests of shared storage.
"""
