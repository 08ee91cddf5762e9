"""The change feed of a sharded table: its changes between two cuts, put together from the feeds of its shards.

Imports: the shards, cuts and requests of `client.sharded`, `client.read.feed`; of `protocol.sharded` the feed and cuts.

Changes: freely, as the rest of the client; which changes a range of cuts has is in `protocol.sharded.feed`.
"""
