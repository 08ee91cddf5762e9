"""The threads of a replica's process, and what they wait for: in the order and under the conditions of the replica that ships.

`seat_threads` says which threads a seat has; `requests` what clients and operators ask of it.
What threads do are stages of `replitree.protocol.program`, which the replica's driver runs, too.

Imports: `world`.

Changes: with the replica, whose threads must stay the same (`tests/project/test_program.py`).
"""
