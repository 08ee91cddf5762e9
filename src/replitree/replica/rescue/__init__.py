"""Restore: tables that coordination has lost are made anew from the disk of a server that does not run.

Imports: `kit` and `perform`.

Changes: freely; what becomes of the nodes is in `replitree.protocol.rescue`.
"""
