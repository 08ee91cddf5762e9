"""A replica's place in the log: pulling entries, registering parts, and what a start reads.

Imports: `core` and `shares`.

Changes: with the checker's models of these procedures, which must be explored again; every rule has a mutant that is caught.
"""
