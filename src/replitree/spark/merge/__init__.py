"""Very large merges on Spark's executors.

Imports: every room of Spark's package.

Changes: freely.
"""
