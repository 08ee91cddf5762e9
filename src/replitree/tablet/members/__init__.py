"""Members of a tablet's blob group: directories, object stores, and blob services on other hosts; groups that ask them.

Imports: `tablet.group`, `tablet.core`, `tablet.runtime`, and of `storage` the rooms `files` and `objects`.

Changes: freely, with the fault tests of members (`tests/storage`, `tests/tablet`).
"""
