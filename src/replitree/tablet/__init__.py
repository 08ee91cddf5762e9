"""A state machine with one leader, numbered by generation, whose log lives in blob storage.

The same rules hold here as in `protocol/`: no clock, randomness, input or output, logging, iteration over sets.  Procedures are
generators that yield effects; whoever runs them performs these.  `docs/tablet.md` is the guide.

=================  =========================================================================================
`ids`              what blobs are called, and the two numbers of every log entry
`envelope`         the bytes around a log entry
`entries`          what log entries hold
`zero`             the entry that opens a generation: which entries of its predecessor count
`effects`          what a procedure may ask of blob groups, and what these answer
`member`           one member of a blob group as a value: the rules that every implementation obeys
`quorum`           a blob group out of N members with a majority
`admission`        which members take part: what a member knows of openings
`openings`         how a group is opened, and what is done when a member may have forgotten something
`replacing`        how a member is made anew from the others
`channels`         which group holds what a generation wrote to a channel
`election`         from a candidate to a leader: fence, recover, zero entry
`recovery`         which entries of the log count
`commit`           what a leader knows of its entries: pipelining, dependencies, what is confirmed
`collection`       what may be deleted, and when
`mending`          what a leader restores
`inspection`       what a log looks like, for people
`lease`            when a leader may answer reads by itself, and how long its successor waits
`probing`          whether somebody still leads
`machine`          what a user writes: a pure state machine
`bodies`           the commands of an entry
`pace`             group commit: when what waits is sent
`snapshots`        how a state lies in blobs
=================  =========================================================================================

`runtime` performs all this in a process and is not pure; it is what users see: `open`, `Tablet`, `Settings`.
"""

from replitree.tablet.runtime.opening import open as open  # noqa: A004 - said as `replitree.tablet.open`
from replitree.tablet.runtime.settings import Settings as Settings
from replitree.tablet.runtime.tablet import Tablet as Tablet

__all__ = ["Settings", "Tablet", "open"]
