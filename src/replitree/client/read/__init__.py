"""Reads: a snapshot at one index, its parts on this machine, partitions, and scans for other engines.

Imports: `transport` and `insert`.

Changes: freely; no read returns a byte that was not verified.  What an engine reads by itself is verified before that.
"""
