"""Moves of buckets between shards, as a client begins them, watches them and carries them on.

Imports: the requests and shards of `client.sharded`; of `protocol.sharded` the map and `moves`.

Changes: freely, as the rest of the client; the steps of a move are in `protocol.sharded.moves`.
"""
