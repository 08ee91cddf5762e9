"""Replicas of a table: creation, joining, activation with a new epoch, and the election of a leader.

Imports: `core`, `shares`, `state`.

Changes: with the checker's models of these procedures, which must be explored again; every rule has a mutant that is caught.
"""
