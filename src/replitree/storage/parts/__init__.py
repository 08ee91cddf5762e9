"""Parts: rows that are conformed, encoded, described by a manifest, verified, and adopted from files of others.

Imports: `files` to `schema`.

Changes: manifests and content hashes are frozen; everything else may change if equal rows still give equal parts.
"""
