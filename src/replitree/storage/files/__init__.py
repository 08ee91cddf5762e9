"""Files: durable writes, checksums, format numbers, and walks through folders that others change.

Imports: no other room.

Changes: with the tests of crashes and of formats.
"""
