"""Sharded tables, as a client sees them: made and dropped, inserted into with one commit over all shards, read as one table.

Imports: `client.transport`, `client.insert` and `client.read`; of `protocol.sharded` what creates and drops, and the map.

Changes: freely, as the rest of the client; what is stored in coordination is in `protocol.sharded`.
"""
