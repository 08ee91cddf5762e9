"""For operators: status, doctor, fsck and repair.

Imports: `transport` to `change`.

Changes: freely; the doctor names the next command.
"""
