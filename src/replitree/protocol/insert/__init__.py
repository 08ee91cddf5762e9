"""Inserts: one commit for parts, deduplication ids and a log entry, and the quorum that follows.

Imports: `core` to `membership`.

Changes: with the checker's models of these procedures, which must be explored again; every rule has a mutant that is caught.
"""
