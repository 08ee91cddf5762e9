"""Executing log entries: fetches, merges, mutations, drops, and replacements of lost parts.

Imports: `core` to `insert`.

Changes: with the checker's models of these procedures, which must be explored again; every rule has a mutant that is caught.
"""
