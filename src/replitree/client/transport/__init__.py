"""Ways to a cluster: its catalog in coordination, replicas over HTTP, routing, leases, object stores; and to Spark.

Imports: everything below the client.

Changes: freely.
"""
