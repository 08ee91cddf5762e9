"""Inserts into a sharded table: the rows are held, split by shard, prepared at replicas, and committed for all shards.

Imports: the shards of `client.sharded`, `client.insert` and `client.transport`; of `protocol.sharded` the map and its views.

Changes: freely, as the rest of the client; what one commit does is in `protocol.sharded.joint_insert`.
"""
