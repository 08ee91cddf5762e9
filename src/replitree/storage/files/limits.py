"""Limits that others than the storage must know, apart from what needs Arrow."""

MERGE_MEMORY_BYTES = 192 << 20
"""Bytes of memory that one merge may take beside those of the process."""
