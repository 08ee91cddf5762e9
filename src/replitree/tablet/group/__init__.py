"""The rules of a blob group: what a member answers, quorums, admission, opening and replacement of members.

Imports: `replitree.errors`, `replitree.decoding`.

Changes: with the checkers of openings and tablets (`replitree_verify`), which must be explored again.
"""
