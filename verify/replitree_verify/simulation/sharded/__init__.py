"""Simulated sharded tables: shards times replicas in one virtual cluster, joint inserts, and reads at cuts.

Imports: the rooms of the simulator, and of the protocol what a sharded table runs.

Changes: freely; a run is a seed and a commit.
"""
