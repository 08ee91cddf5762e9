"""The models of tablets: which seats, members and faults are explored; `catalog` has them by name.

`data`, `store`, `losses` and `lost_blobs` are one theme each.

Imports: `tablets.model` and `tablets.drafts`.

Changes: a changed count without a changed protocol is a finding; `tests/verify/tablets/pins.py` has the counts.
"""
