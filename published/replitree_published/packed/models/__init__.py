"""The packed models: log cleaning, replication and quorum inserts, as they were published and with their defects mended.

Imports: `packed.bits` and `packed.model`.

Changes: with the pinned figures of `tests/verify/packed/pins.py`, which other checkers find too.
"""
