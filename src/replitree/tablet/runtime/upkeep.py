"""What a leader does beside its commits: look whether it still leads, make snapshots, collect what nobody needs any more.

A snapshot, in this order (`snapshots`, `collection`): its pieces, its entry, wait until it is confirmed and until a stored
entry names it; if nothing else is sent, a sync entry does.  Then the log is collected, and the blobs of the snapshot before.
A command to collect that has not reached every member is repeated before the next one.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from replitree.tablet import collection, commit, snapshots
from replitree.tablet.channels import Channels
from replitree.tablet.collection import Garbage
from replitree.tablet.effects import Collected, Collection, Fence, Overtaken, Stored
from replitree.tablet.entries import LogEntry
from replitree.tablet.ids import NOTHING, BlobId, GenStep, Step, log_entry
from replitree.tablet.machine import Machine
from replitree.tablet.mending import blobs_of, mend
from replitree.tablet.probing import Probed
from replitree.tablet.recovery import Accepted, own_references
from replitree.tablet.runtime.commits import Commits, end_of
from replitree.tablet.runtime.fresh import FreshReads
from replitree.tablet.runtime.performing import Groups, store_all, store_one

State = TypeVar("State")

WAIT_S = 0.5
"""How often it looks whether the leader is closed, while it waits for an entry, in seconds."""


class Upkeep(Generic[State]):
    """Works in one thread of its own, beside those that store entries.

    Parameters
    ----------
    groups, channels, machine
        As of the tablet.
    commits
        What it looks after.
    fence
        As the leader raised it.
    accepted
        What was recovered.

    Attributes
    ----------
    is_mended
        Whether all that was recovered was restored on every member that answers.
    """

    def __init__(
        self,
        groups: Groups,
        channels: Channels,
        machine: Machine[State],
        commits: Commits[State],
        fence: Fence,
        accepted: Accepted,
    ) -> None:
        is_snapshot = bool(accepted) and accepted[0][1].is_snapshot
        self.is_mended = not accepted
        self._groups = groups
        self._channels = channels
        self._machine = machine
        self._commits = commits
        self._fence = fence
        self._accepted = accepted
        self._garbage: Garbage = collection.inherited(channels.tablet, commits.ledger.generation, accepted)
        self._blobs: tuple[BlobId, ...] = own_references(channels.tablet, accepted[0][1]) if is_snapshot else ()
        self._log_commands = 0
        self._cookie = 1
        self._uncollected: tuple[Collection, ...] = ()

    def look(self, probe: FreshReads[Probed]) -> None:
        """Learn of it if somebody else leads."""
        found = probe.read()
        if isinstance(found, Overtaken):
            self._commits.end(end_of(found))

    def mend(self) -> None:
        """Restore what was recovered, wherever it is missing, unless that is done."""
        if self.is_mended:
            return
        with self._commits.changed:
            ledger, durable = self._commits.ledger, self._commits.durable_snapshot
        is_own = durable.generation == ledger.generation
        first = durable.step if is_own else 0
        own = (log_entry(ledger.tablet, ledger.generation, Step(step)) for step in range(first, ledger.confirmed + 1))
        recovered = () if is_own else blobs_of(ledger.tablet, ledger.generation, self._accepted)
        blobs = (*self._blobs, *recovered, *own)
        found = self._groups.run(mend(self._channels, self._fence, blobs))
        if isinstance(found, Overtaken):
            self._commits.end(end_of(found))
        self.is_mended = found is None

    def snapshot(self) -> bool:
        """Make a snapshot and collect what it replaces; return whether it was made.

        Raises
        ------
        NotLeader
            It does not lead any more.
        """
        state, commands, ledger = self._commits.begin_snapshot()
        pieces = snapshots.pieces_of(ledger, self._machine.snapshot(state), self._cookie)
        self._cookie += len(pieces)
        for blob, data in pieces:
            outcome = store_one(self._groups, self._channels, blob, data)
            if isinstance(outcome, Overtaken):
                self._commits.end(end_of(outcome))
            if not isinstance(outcome, Stored):
                return False
        names = tuple(blob for blob, _ in pieces)
        flight, draft = self._commits.send_snapshot(
            lambda ledger, since: snapshots.draft_of(ledger, names, commands, since, self._blobs)
        )
        outcomes = store_all(self._groups, self._channels, flight.blobs)
        for (blob, _), outcome in zip(flight.blobs, outcomes, strict=True):
            self._commits.taken(blob, outcome)
        place = GenStep(ledger.generation, flight.step)
        if not self._is_named(place):
            return False
        said = LogEntry(NOTHING, Step(0), gc_discovered=draft.gc_discovered, gc_left=draft.gc_left)
        self._garbage = collection.noted(self._garbage, place, said)
        self._blobs, self._accepted = draft.gc_discovered, ()
        self._collect()
        return True

    def _is_named(self, place: GenStep) -> bool:
        """Wait until a stored entry names the snapshot; store a sync entry that does, if nothing else is on its way."""
        commits = self._commits
        while True:
            with commits.changed:
                if commits.is_over:
                    return False
                if commits.durable_snapshot >= place:
                    return True
                snapshot = commits.ledger.snapshot
                entry = commit.sync_entry(commits.ledger) if snapshot >= place else None
                if entry is None:
                    commits.changed.wait(WAIT_S)
                    continue
            outcome = store_one(self._groups, self._channels, *entry)
            if isinstance(outcome, Stored):
                commits.synced(entry[0], snapshot)
            else:
                commits.failed(Step(entry[0].step + 1), outcome)

    def _collect(self) -> None:
        with self._commits.changed:
            ledger, durable = self._commits.ledger, self._commits.durable_snapshot
        self._log_commands += 1
        log = collection.log_collection(ledger, self._log_commands)
        if log is not None:
            self._send(log)
        if not self._uncollected:
            bound = collection.bound_of(ledger, durable)
            self._garbage, self._uncollected = collection.take(self._garbage, bound, (snapshots.DATA,))
        self._uncollected = tuple(each for each in self._uncollected if not self._send(each))

    def _send(self, command: Collection) -> bool:
        """Send a command; return whether every member has taken it."""
        outcome = self._groups.run(collection.collect(self._channels, command))
        if isinstance(outcome, Overtaken):
            self._commits.end(end_of(outcome))
        return isinstance(outcome, Collected)
