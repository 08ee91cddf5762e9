"""Reading with Spark: frames, final reads, views, and the reader of the data source.

Imports: `session` and `store`.

Changes: freely.
"""
