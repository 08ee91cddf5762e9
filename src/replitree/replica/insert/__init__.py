"""Inserts on a replica: groups that share a commit, quorums, and what becomes of an insert in doubt.

Imports: `kit` to `parts`.

Changes: freely, but not the order of procedures, which the checker's threads repeat.
"""
