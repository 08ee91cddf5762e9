"""A state machine with one leader, numbered by generation, whose log lives in blob storage.

The rules of `protocol/` hold here: no clock, randomness, input or output, logging, iteration over sets.  Procedures are
generators that yield effects; the process that runs a procedure performs them.  `docs/tablet.md` is the guide.

=================  =========================================================================================
`ids`              the ids of blobs, and the two numbers of every log entry
`envelope`         the bytes around a log entry
`entries`          the content of log entries
`zero`             the entry that opens a generation: which entries of the previous generations count
`effects`          the requests of a procedure to blob groups, and their answers
`member`           one member of a blob group as a value: the rules that every implementation obeys
`quorum`           a blob group of N members with a majority
`admission`        which members take part: what a member knows of openings
`openings`         how a group is opened, and what happens when a member may have lost blobs
`replacing`        how a member is rebuilt from the others
`channels`         which group holds the blobs that a generation wrote to a channel
`election`         from a candidate to a leader: fence, recover, zero entry
`recovery`         which entries of the log count
`commit`           what a leader knows of its entries: pipelining, dependencies, confirmation
`collection`       which blobs may be deleted, and when
`mending`          which blobs a leader restores
`inspection`       the state of a log, for people
`lease`            when a leader may answer reads by itself, and how long its successor waits
`probing`          whether this leader still leads
`machine`          what a user writes: a pure state machine
`bodies`           the commands of an entry
`pace`             group commit: when waiting commands are sent
`snapshots`        how a state is stored in blobs
=================  =========================================================================================

`runtime` performs the procedures in a process and is not pure.  Users see `runtime`: `open`, `Tablet`, `Settings`.
"""

from replitree.tablet.runtime.opening import open as open  # noqa: A004 - said as `replitree.tablet.open`
from replitree.tablet.runtime.settings import Settings as Settings
from replitree.tablet.runtime.tablet import Tablet as Tablet

__all__ = ["Settings", "Tablet", "open"]
