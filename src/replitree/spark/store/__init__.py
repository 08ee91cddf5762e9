"""Files that Spark's JVM opens: local parts, copies of objects, and a gateway to a store.

Imports: `session`.

Changes: freely.
"""
