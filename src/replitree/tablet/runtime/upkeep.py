"""A leader's work besides its commits: check that it still leads, make snapshots, collect blobs that are needed no longer.

A snapshot, in this order (`snapshots`, `collecting`): its pieces, and the commands that came meanwhile, when there are many;
its entry; wait until the entry is confirmed and a stored entry names it; if nothing else is sent, a sync entry does.  Then the
leader collects the log, and the blobs of the previous snapshot.  Each command to collect repeats the orders of the earlier ones
that have not reached every member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from replitree.tablet.core import collecting, commit, snapshots
from replitree.tablet.core.channels import Channels
from replitree.tablet.core.entries import LogEntry
from replitree.tablet.core.machine import Machine, machine_failed
from replitree.tablet.core.mending import Mended, blobs_of, mend
from replitree.tablet.core.probing import Probed
from replitree.tablet.core.recovery import Accepted, own_references
from replitree.tablet.group.effects import Fence, Overtaken, Stored
from replitree.tablet.group.ids import NOTHING, BlobId, GenStep, Step, log_entry
from replitree.tablet.runtime.commits import Commits, end_of
from replitree.tablet.runtime.fresh import FreshReads
from replitree.tablet.runtime.mends import Mends
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
    mends
        Whether every member that answers has all that counts, and what has to be done for it.
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
        self.mends = Mends(groups, is_needed=bool(accepted))
        self._groups = groups
        self._channels = channels
        self._machine = machine
        self._commits = commits
        self._fence = fence
        self._accepted = accepted
        self._collecting = collecting.begun(channels.tablet, commits.ledger.generation, accepted)
        self._blobs: tuple[BlobId, ...] = own_references(channels.tablet, accepted[0][1]) if is_snapshot else ()
        self._cookie = 1

    def look(self, probe: FreshReads[Probed]) -> None:
        """Find out whether another process leads."""
        found = probe.read()
        if isinstance(found, Overtaken):
            self._commits.end(end_of(found))

    def mend(self) -> None:
        """Restore what counts wherever it is missing, if that is due."""
        # Before the ledger is read: every blob that a member has missed by now is then among those that were sent.
        missed = self._groups.missed()
        with self._commits.changed:
            ledger = self._commits.ledger
        due = self.mends.due(missed, ledger.last, ledger.confirmed)
        if due is None:
            return
        is_own = ledger.snapshot_durable.generation == ledger.generation
        first = ledger.snapshot_durable.step if is_own else 0
        # From the durable snapshot on: everything before it may be collected.
        own = (log_entry(ledger.tablet, ledger.generation, Step(step)) for step in range(first, ledger.confirmed + 1))
        recovered = () if is_own else blobs_of(ledger.tablet, ledger.generation, self._accepted)
        blobs = (*self._blobs, *recovered, *own)
        found = self._groups.run(mend(self._channels, self._fence, blobs))
        if isinstance(found, Overtaken):
            self._commits.end(end_of(found))
        self.mends.ended(due, found.lacking if isinstance(found, Mended) else None)

    def snapshot(self) -> bool:
        """Make a snapshot and collect what it replaces; return whether it was made.

        Raises
        ------
        NotLeader
            It does not lead any more.
        """
        try:
            begun = self._store_state()
            if begun is None:
                return False
            flight, draft = self._commits.send_snapshot(
                lambda ledger, rest: snapshots.draft_of(ledger, begun, rest, self._blobs, self._cookie)
            )
        finally:
            # Also after an error: commands would be written down for ever, and in the end wait for it.
            self._commits.end_snapshot()
        # Every blob gets a name of its own, also when the snapshot before failed in the middle.
        self._cookie += len(draft.parallel)
        outcomes = store_all(self._groups, self._channels, flight.blobs)
        for (blob, _), outcome in zip(flight.blobs, outcomes, strict=True):
            self._commits.taken(blob, outcome)
        place = GenStep(self._commits.ledger.generation, flight.step)
        # Nothing is collected before a stored entry names the snapshot: a recovery may go back to the previous one.
        if not self._is_named(place):
            return False
        said = LogEntry(NOTHING, Step(0), gc_discovered=draft.gc_discovered, gc_left=draft.gc_left)
        self._collecting = collecting.said(self._collecting, place, said)
        self._blobs, self._accepted = draft.gc_discovered, ()
        with self._commits.changed:
            ledger = self._commits.ledger
        self._collecting, commands = collecting.next_commands(self._collecting, ledger, (snapshots.DATA,))
        result = self._groups.run(collecting.send(self._channels, self._collecting.taken_everywhere, commands))
        self._collecting = collecting.sent(self._collecting, commands, result)
        if result.overtaken is not None:
            self._commits.end(end_of(result.overtaken))
        return True

    def _store_state(self) -> snapshots.Begun | None:
        """Store the state piece by piece, and what comes meanwhile; None when something may not be stored."""
        state, commands, ledger = self._commits.begin_snapshot()
        try:
            data = self._machine.snapshot(state)
        except Exception as error:
            # The machine's own error: the same state would fail again, here and in every successor.
            failed = machine_failed("a snapshot", error)
            self._commits.end(failed)
            raise failed from error
        pieces = snapshots.pieces_of(ledger, data, self._cookie)
        self._cookie += len(pieces)
        since = list[BlobId]()
        for piece in pieces:
            if not self._are_stored((piece,)):
                return None
            more = snapshots.since_of(ledger, self._commits.take_since(snapshots.SINCE_BYTES), self._cookie)
            self._cookie += len(more)
            if not self._are_stored(more):
                return None
            since += (blob for blob, _ in more)
        return snapshots.Begun(commands, tuple(blob for blob, _ in pieces), tuple(since))

    def _are_stored(self, blobs: Sequence[tuple[BlobId, bytes]]) -> bool:
        outcomes = store_all(self._groups, self._channels, blobs)
        for outcome in outcomes:
            if isinstance(outcome, Overtaken):
                self._commits.end(end_of(outcome))
        return all(isinstance(each, Stored) for each in outcomes)

    def _is_named(self, place: GenStep) -> bool:
        """Wait until a stored entry names the snapshot; store a sync entry that does, if nothing else is on its way."""
        commits = self._commits
        while True:
            with commits.changed:
                if commits.is_over:
                    return False
                if commits.ledger.snapshot_durable >= place:
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
