"""Merges whose results a client puts into the object store, under the checker: `merging` with an upload.

Imports: `merging`, `shared_tables` and `engine.small_search`.

Changes: with `protocol.shares.uploading`; its counts are pinned.
"""
