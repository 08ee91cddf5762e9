"""Performing effects: on this disk, in coordination, in an object store, and at other replicas.

Imports: `kit`.

Changes: with the tests of performers; an effect means the same here as in the checker.
"""
