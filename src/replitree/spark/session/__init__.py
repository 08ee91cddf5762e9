"""A Spark session in which tables work: settings, types, columns, and what its jobs have written.

Imports: everything below Spark's package.

Changes: freely.
"""
