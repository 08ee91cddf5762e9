"""HTTP: what is asked of a replica of a shard because its table is sharded: joint inserts, and reads at a cut.

Imports: every room of the replica.

Changes: freely, with the tests of hostile requests.
"""
