"""A leader's entries: which are sent, which are committed, and the step up to which all are.

A `Ledger` is a value.  `form` makes the next entry and returns the blobs to store; the leader sends them at once, without
waiting for the entries before.  `stored` and `failed` take the results.  So entries are pipelined, under these rules:

* An entry is *committed*, and its client may be answered, when all its own blobs are stored and every entry that it depends on
  is committed.
* The log is *confirmed* up to the last step such that its entry and all entries before it are committed.
* An entry names the steps that it depends on.  By default that is the step before it, so that a hole ends the log; a leader
  whose entries commute may name others.  A snapshot that is not total depends on all steps that are not confirmed.
* An entry names the last *confirmed* snapshot, so that every reader of the entry may rely on it.
* The first entry that fails ends the ledger: it forms no entry any more.  Entries before the failed one may still be committed,
  later ones are not.  The clients of the failed and the later entries are answered "outcome unknown".  No step is used twice.

Limits: an entry is formed while fewer than `STEPS_MAX` entries and `BYTES_MAX` bytes are sent and not stored.  The ledger keeps
both as counters, because it is asked before each entry.  A leader that commits waits until there is room (`Ledger.has_room`).

A ledger and its entries are structs, not dataclasses: each commit replaces them several times, and replacing a struct is ten
times faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from replitree.tablet.core.election import Won
from replitree.tablet.core.entries import LogEntry, encode
from replitree.tablet.group.ids import ENTRY, LOG, NOTHING, SYNC, BlobId, Generation, GenStep, Step, TabletId, log_entry

BEGIN = Step(0)
STEPS_MAX = 10_000
BYTES_MAX = 256 << 20


class Draft(msgspec.Struct, frozen=True):
    """The content of an entry that the state machine wants to commit.

    Attributes
    ----------
    body
        What to write into the entry, when there are no references and it is no snapshot.
    references
        Blobs that are stored already.
    parallel
        Blobs to be stored together with the entry: of this tablet and generation, and not in the log.
    depends_on
        Steps without which this one must not count; None: the step before it.
    is_snapshot, is_total, gc_discovered, gc_left, metadata
        As in `LogEntry`.
    """

    body: bytes = b""
    references: tuple[BlobId, ...] = ()
    parallel: tuple[tuple[BlobId, bytes], ...] = ()
    depends_on: tuple[Step, ...] | None = None
    is_snapshot: bool = False
    is_total: bool = False
    gc_discovered: tuple[BlobId, ...] = ()
    gc_left: tuple[BlobId, ...] = ()
    metadata: tuple[tuple[int, bytes], ...] = ()


class Pending(msgspec.Struct, frozen=True):
    """An entry that is not confirmed.

    Attributes
    ----------
    step, entry, bytes
        Which; what is on its way.
    missing
        Its blobs that are not known to be stored.
    is_committed
        Whether its client may hear it.
    """

    step: Step
    entry: LogEntry
    bytes: int
    missing: frozenset[BlobId]
    is_committed: bool = False


class Ledger(msgspec.Struct, frozen=True):
    """The entries of one leader.

    Attributes
    ----------
    tablet, generation
        Whose.
    snapshot
        The last confirmed snapshot.
    last
        The last step that was used.
    pending
        The entries that are not confirmed, by step.
    flying, flying_bytes
        How many of them are not committed, and their bytes.
    confirmed, confirmed_durable
        All steps up to here are committed; a stored entry says so.
    snapshot_durable
        The last snapshot that a stored entry names.
    failed_at
        The first step that failed, or None.
    barrier
        Up to where the log may be collected, since the last snapshot was confirmed.
    """

    tablet: TabletId
    generation: Generation
    snapshot: GenStep
    last: Step = BEGIN
    pending: tuple[Pending, ...] = ()
    flying: int = 0
    flying_bytes: int = 0
    confirmed: Step = BEGIN
    confirmed_durable: Step = BEGIN
    failed_at: Step | None = None
    barrier: GenStep | None = None
    snapshot_durable: GenStep = NOTHING

    @property
    def has_room(self) -> bool:
        """Whether another entry may be sent."""
        return self.flying < STEPS_MAX and self.flying_bytes < BYTES_MAX

    @property
    def is_over(self) -> bool:
        """Whether it failed and nothing that could still be committed is on its way."""
        return self.failed_at is not None and not any(
            each.step < self.failed_at and not each.is_committed for each in self.pending
        )


def open_ledger(tablet: TabletId, elected: Won) -> Ledger:
    """Return the ledger of a leader that was just elected."""
    snapshot = elected.zero.snapshot
    return Ledger(tablet, elected.generation, snapshot, snapshot_durable=snapshot)


def form(ledger: Ledger, draft: Draft) -> tuple[Ledger, tuple[tuple[BlobId, bytes], ...]]:
    """Make the next entry; return what is to be stored, all of it at once and in any order."""
    assert ledger.failed_at is None, "a leader that failed makes no more entries"
    # The caller waits for room: a leader that outruns its members would hold all of its entries in memory.
    assert ledger.has_room
    step = Step(ledger.last + 1)
    blob = log_entry(ledger.tablet, ledger.generation, step)
    parallel = tuple([each for each, _ in draft.parallel]) if draft.parallel else ()
    assert not parallel or all(each.place == blob.place and each.channel for each in parallel), (
        "a reference of another step"
    )
    entry = LogEntry(
        snapshot=ledger.snapshot,
        confirmed=ledger.confirmed,
        depends_on=_dependencies(ledger, draft),
        references=(*draft.references, *parallel),
        # A total entry replaces everything before it, so it is a snapshot, too.
        is_snapshot=draft.is_snapshot or draft.is_total,
        is_total=draft.is_total,
        gc_discovered=draft.gc_discovered,
        gc_left=draft.gc_left,
        body=draft.body,
        metadata=draft.metadata,
    )
    blobs = (*draft.parallel, (blob, encode(blob, entry)))
    names, data = zip(*blobs, strict=True)
    size = sum(map(len, data))
    pending = Pending(step, entry, size, frozenset(names))
    after = msgspec.structs.replace(
        ledger,
        last=step,
        pending=(*ledger.pending, pending),
        flying=ledger.flying + 1,
        flying_bytes=ledger.flying_bytes + size,
    )
    return after, blobs


def _dependencies(ledger: Ledger, draft: Draft) -> tuple[Step, ...]:
    """Return what an entry depends on, but for what is committed already; a snapshot names whatever is not confirmed."""
    if draft.is_total or not ledger.pending:
        return ()
    if draft.is_snapshot:
        return tuple(each.step for each in ledger.pending)
    # On the step before it by default: then a hole ends the log.
    wanted = (ledger.last,) if draft.depends_on is None else draft.depends_on
    return tuple(each.step for each in ledger.pending if each.step in wanted and not each.is_committed)


def stored(ledger: Ledger, blob: BlobId) -> tuple[Ledger, tuple[Step, ...]]:
    """Take that a blob is stored; return the steps that are committed by it, whose clients may hear so."""
    pending = [
        msgspec.structs.replace(each, missing=each.missing - {blob}) if each.step == blob.step else each
        for each in ledger.pending
    ]
    ledger, committed = _commit(ledger, pending)
    if blob == (ledger.tablet, LOG, ledger.generation, blob.step, ENTRY):
        # A stored entry proves what it says of others: a recovery that finds it relies on the same.
        own = next((each.entry for each in ledger.pending if each.step == blob.step), None)
        if own is not None:
            ledger = _with_durable(ledger, own.confirmed, own.snapshot)
    return _confirm(ledger), committed


def _confirm(ledger: Ledger) -> Ledger:
    """Move on over what is committed without a hole."""
    for each in ledger.pending:
        if not each.is_committed:
            break
        ledger = msgspec.structs.replace(ledger, pending=ledger.pending[1:], confirmed=each.step)
        if each.entry.is_snapshot:
            # Not up to the snapshot: a recovery that is sent to the previous one must be able to show that this one counts.
            barrier = GenStep(ledger.generation, each.entry.confirmed)
            ledger = msgspec.structs.replace(ledger, snapshot=GenStep(ledger.generation, each.step), barrier=barrier)
    return ledger


def _commit(ledger: Ledger, before: Sequence[Pending]) -> tuple[Ledger, tuple[Step, ...]]:
    """Commit what can be of these; a step depends on earlier ones only, so one pass is enough."""
    # A step that is neither here nor confirmed does not exist: dependencies point backwards only.
    waiting = {each.step for each in before if not each.is_committed}
    pending: list[Pending] = []
    committed: list[Step] = []
    size = 0
    for each in before:
        needed = each.entry.depends_on
        is_held = bool(needed) and any(step in waiting and step not in committed for step in needed)
        is_late = ledger.failed_at is not None and each.step >= ledger.failed_at
        if each.is_committed or each.missing or is_held or is_late:
            pending.append(each)
        else:
            pending.append(msgspec.structs.replace(each, is_committed=True))
            committed.append(each.step)
            size += each.bytes
    after = msgspec.structs.replace(
        ledger,
        pending=tuple(pending),
        flying=ledger.flying - len(committed),
        flying_bytes=ledger.flying_bytes - size,
    )
    return after, tuple(committed)


def _with_durable(ledger: Ledger, confirmed: Step, snapshot: GenStep) -> Ledger:
    return msgspec.structs.replace(
        ledger,
        confirmed_durable=max(ledger.confirmed_durable, confirmed),
        snapshot_durable=max(ledger.snapshot_durable, snapshot),
    )


def failed(ledger: Ledger, step: Step) -> Ledger:
    """Take that a blob of a step may not have been stored: the step's outcome is unknown, and so is that of all after it."""
    # The first failure counts: what comes after it depends on it, by default.
    first = step if ledger.failed_at is None else min(step, ledger.failed_at)
    return msgspec.structs.replace(ledger, failed_at=first)


def sync_entry(ledger: Ledger) -> tuple[BlobId, bytes] | None:
    """Return the entry that says how far the log is confirmed, when nothing is on its way and no other entry says so."""
    # Any later entry says how far the log is confirmed: a sync entry is for a log that rests.
    if ledger.pending or ledger.failed_at is not None or ledger.confirmed in (0, ledger.confirmed_durable):
        return None
    blob = log_entry(ledger.tablet, ledger.generation, ledger.last, SYNC)
    return blob, encode(blob, LogEntry(ledger.snapshot, ledger.confirmed))


def synced(ledger: Ledger, blob: BlobId, snapshot: GenStep) -> Ledger:
    """Take that a sync entry is stored, which names a snapshot; others may have been committed since it was made."""
    return _with_durable(ledger, blob.step, snapshot)
