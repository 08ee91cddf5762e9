"""Limits that others than the storage must know, apart from what needs Arrow."""

MERGE_MEMORY_BYTES = 192 << 20
"""What one merge may take, beside what the process has anyway."""
