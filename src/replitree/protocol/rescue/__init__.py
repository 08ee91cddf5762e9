"""Rescue: a replica that was lost or fell behind, a table that coordination lost, and `fsck` of shared files.

Imports: every room of the protocol.

Changes: with the checker's models of these procedures, which must be explored again; every rule has a mutant that is caught.
"""
