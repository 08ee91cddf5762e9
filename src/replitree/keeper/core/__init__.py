"""The pure part of the keeper: bytes of clients to log entries, committed entries to replies and events.

No clock, randomness, input or output, thread.  `tests/keeper` compares every byte with a real ZooKeeper.

Imports: xxhash.

Changes: what a log means has a version, `state.RULES`: a change that makes another state of an old batch raises it and keeps
the old rules for old batches.  The formats of `batch` and `snapshot` need a frozen example.

=============  =============================================================================
`wire`         frames, primitive types, handshakes, headers, events, Stat
`paths`        which paths a node may have
`acls`         access control lists, identities, authentication
`state`        the tables, their journal for undo, their digest
`tree`         changes of nodes and what follows from them
`quota`        counts of subtrees
`requests`     requests that change the tree, decoded
`writes`       what they check, in which order, and what is replied
`reads`        requests that are answered without the log
`watches`      which connections hear of a change
`batch`        the log entry (a format: changes need a frozen example)
`apply`        the state machine, total
`snapshot`     the state as pieces of bytes (a format)
`sessions`     passwords, timeouts, silence
`front`        the connections of a leader
=============  =============================================================================
"""
