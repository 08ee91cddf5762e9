"""The nemesis: clients that write down what they see while a test cluster is hurt; what they saw is judged.

`run` connects to a cluster that is marked as one for tests, lets `visitors` insert into and read a table of its own, hurts the
cluster by the commands of `strikes`, heals it, reads at every replica, and has the history judged (`histories`).  `overview`
draws what happened.  `stream` runs a driver of Spark beside the visitors (`spark_driver`, a process of its own), and kills it.

Imports: the product's client, and `histories`; only `spark_driver` imports PySpark.

Changes: the project's own fault harness (`tests/faults`) has the same visitors and the same drawing, and faults that only it
can do.
"""
