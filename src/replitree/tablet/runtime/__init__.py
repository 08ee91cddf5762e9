"""Tablets as they run: the pure procedures of `replitree.tablet` performed by a process, with threads, a clock and a lock.

=================  =========================================================================================
`opening`          `open`: from a candidate to a leader that serves
`tablet`           `Tablet`: commands, reads, snapshots, the end
`commits`          what waits, what is on its way, what is committed, the state
`upkeep`           snapshots and collection in the background
`patience`         waiting for a lease
`fresh`            reads and probes that many wait for and one does
`collector`        no search for garbage while a log is read
`performing`       what a blob group must be able to do
`settings`         limits, lease, clock
=================  =========================================================================================

Imports: `tablet.group` and `tablet.core`.

Changes: freely, with the tests of take-over and of faults (`tests/tablet`).
"""
