"""The rules of a tablet: generations, elections, commits, recovery, leases and losses.

Imports: `group`, xxhash.

Changes: with the checker of tablets (`replitree_verify.tablets`), which must be explored again.
"""
