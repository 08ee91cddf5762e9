"""Fsck, and replicas that have lost their disks, under every order of steps, with faults.

A small search of its own, beside the explorer of the table's protocol: what matters here is coordination, an object store, and
who is registered.  `world` says what is, `scene` what may happen, `search` goes through all of it, `models` has the scenarios,
`process` what a replica's process does, `memory` what it knows by itself.  `checking`, `disks` and `operators` add disks,
times and fsck, `mender` a replica that has lost its disk.

Imports: `engine.small_search` and `world.kernel`.

Changes: with `protocol.shares` and fsck; its counts are pinned.
"""
