"""Commands on tablets: run, inspect, accept a loss, replace a member.

Imports: the modules beside the rooms, `replitree.tablet` and `replitree.machines`; no other room.

Changes: freely; a command prints and never decides, and its options are documented.
"""
