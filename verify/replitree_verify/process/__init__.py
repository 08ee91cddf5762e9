"""The threads of a replica's process, and what they wait for: in the order and under the conditions of the replica that ships.

`working` says which threads a seat has; `asked` what clients and operators ask of it.  Stages that the replica's driver
runs are imported from `replitree.protocol.program`; `threads` has counterparts of those that it does not run yet.

Imports: `world`.

Changes: with the replica, whose threads must stay the same (`tests/project/test_program.py`).
"""
