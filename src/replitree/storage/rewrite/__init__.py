"""Reading parts, and rewriting them: merges, mutations, and parts without rows.

Imports: `files` to `sql`.

Changes: freely, as long as every replica still writes the same content.
"""
