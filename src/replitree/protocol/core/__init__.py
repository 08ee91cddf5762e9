"""What the protocol is made of: effects, log entries, part names, the fold of the log, and the paths in coordination.

Imports: `replitree.errors` and `replitree.decoding` only.

Changes: a change of meaning or format needs new frozen bytes in `tests/formats` and all models.
"""
