"""A table's parts on one disk: staging, publishing, fetching, sharing, moving, detaching and freezing.

Imports: every room of storage.

Changes: with the tests of crashes: a folder has a part's name only while all of it is durable.
"""
