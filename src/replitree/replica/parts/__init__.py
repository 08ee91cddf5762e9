"""What a replica does with its parts: merges, commands, checks, salvage, shares and moves.

Imports: `kit` to `uploads`.

Changes: freely, but not the order of procedures, which the checker's threads repeat.
"""
