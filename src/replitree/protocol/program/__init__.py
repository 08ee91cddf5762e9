"""The program of a replica: its threads, as stages that string the procedures together.

A replica runs these stages with its driver (`replitree.replica.perform.driver`).
The explorer and the simulator run the same stages.

Imports: every room of the protocol.

Changes: with the checker's models, which must be explored again; a changed count of states is named in the commit.
"""
