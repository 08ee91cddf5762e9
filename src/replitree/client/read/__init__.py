"""Reads: a snapshot at one index, its parts on this machine, and partitions.

Imports: `transport` and `insert`.

Changes: freely; no read returns a byte that was not verified.
"""
