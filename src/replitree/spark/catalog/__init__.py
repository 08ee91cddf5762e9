"""The planner of Spark's catalog: the process that the JVM asks for tables, snapshots and files (`scala/` in the checkout).

Imports: `session`, `store`, and the client.

Changes: with `scala/Planner.scala` and `scala/Table.scala`, which read the answers; both are of one version always.
"""
