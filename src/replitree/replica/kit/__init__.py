"""What the rooms of a replica share: configuration, logs, metrics, the token, definitions, and the log's recent past.

Imports: everything below the replica.

Changes: freely.
"""
