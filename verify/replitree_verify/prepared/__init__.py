"""Merges whose results somebody else puts into the object store, under the checker: `merging` with an upload."""
