"""Streams: batches of streaming queries become inserts that the table knows by their numbers, and tables are read by streams.

Imports: `session` to `write`.

Changes: freely, but offsets of checkpoints must be understood for ever; a batch that fails leaves nothing, and one that is sent
again inserts nothing twice.
"""
