"""Upkeep: removing old log entries, deduplication ids and results, and giving up parts that no replica has.

Imports: `core` to `propose`.

Changes: with the checker's models of these procedures, which must be explored again; every rule has a mutant that is caught.
"""
