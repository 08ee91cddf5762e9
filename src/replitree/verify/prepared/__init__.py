"""Merges whose results somebody else puts into the object store, under the checker: `verify.merging` with an upload."""
