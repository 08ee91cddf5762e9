"""Inserts: rows in slices, uploads, tokens and quorums.

Imports: `transport`.

Changes: freely; an insert that is repeated with its token must stay a duplicate.
"""
