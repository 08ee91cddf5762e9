"""Schemas: column types, a table's definition, partition transforms, merge and storage policies.

Imports: `files` and `objects`.

Changes: definitions are stored: a change needs a format number and frozen bytes.
"""
