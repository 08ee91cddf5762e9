"""Streams: batches of streaming queries become inserts that the table knows by their numbers.

Imports: `session` to `write`.

Changes: freely; a batch that fails leaves nothing, and one that is sent again inserts nothing twice.
"""
