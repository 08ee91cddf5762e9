"""`replitree verify`: the commands of the checker, which `replitree.cli` finds by their entry point.

Imports: every room of the checker.

Changes: freely; the names of commands and options are documented.
"""
