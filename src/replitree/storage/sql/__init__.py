"""SQL: conditions, expressions, mutations and changes of columns, with the values that Spark gives.

Imports: `files` to `parts`.

Changes: with the tests that compare each result with Spark's.
"""
