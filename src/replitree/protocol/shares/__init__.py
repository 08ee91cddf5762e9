"""Shares of an object store: who owns which files, how shares are marked, released, moved and uploaded.

Imports: `core`.

Changes: with the checker's models of these procedures, which must be explored again; every rule has a mutant that is caught.
"""
