"""Reading parts, staging rows slice by slice, and rewriting parts: merges, mutations, statements, and parts without rows.

Imports: `files` to `sql`.

Changes: freely, as long as every replica still writes the same content.
"""
