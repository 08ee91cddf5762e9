"""Becoming the leader of a tablet: stand for election, load the state, wait for the lease of the previous leader."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import Future
from typing import TypeVar, overload

from replitree.errors import BadInput, NotLeader, ReplitreeError, StoreError, TabletDamaged, Unavailable
from replitree.tablet.core import lease, snapshots
from replitree.tablet.core.bodies import decode_commands
from replitree.tablet.core.channels import Channels, in_one_group
from replitree.tablet.core.commit import open_ledger
from replitree.tablet.core.election import Candidate, NotElected, open_generation, prepare
from replitree.tablet.core.machine import Machine, machine_failed
from replitree.tablet.core.recovery import Accepted, MissingEntries, own_references
from replitree.tablet.group.effects import Blobs, Fence, Overtaken, Procedure, ReadBlobs
from replitree.tablet.group.ids import NOTHING, TABLET_BITS, BlobId, Generation, GroupId, TabletId
from replitree.tablet.runtime.collector import without_collector
from replitree.tablet.runtime.commits import Commits
from replitree.tablet.runtime.patience import wait_until
from replitree.tablet.runtime.performing import Group, Groups, JustOpened
from replitree.tablet.runtime.settings import Settings
from replitree.tablet.runtime.tablet import Tablet
from replitree.tablet.runtime.upkeep import Upkeep

State = TypeVar("State")

Contents = tuple[tuple[BlobId, bytes], ...]


@overload
def open(  # noqa: A001 - as below
    groups: Group,
    machine: Machine[State],
    *,
    tablet: int = 1,
    settings: Settings | None = None,
    floor: int = 0,
    assigned: int | None = None,
) -> Tablet[State]: ...


@overload
def open(  # noqa: A001 - as below
    groups: Groups,
    machine: Machine[State],
    channels: Channels,
    *,
    settings: Settings | None = None,
    floor: int = 0,
    assigned: int | None = None,
) -> Tablet[State]: ...


def open(  # noqa: A001 - said as `replitree.tablet.open`
    groups: Group | Groups,
    machine: Machine[State],
    channels: Channels | None = None,
    *,
    tablet: int = 1,
    settings: Settings | None = None,
    floor: int = 0,
    assigned: int | None = None,
) -> Tablet[State]:
    """Become the leader of a tablet, also where another process leads.

    Parameters
    ----------
    groups
        One blob group, such as `replitree.tablet.members.folders.open_group` returns; or, with `channels`, groups of any kind,
        such as `replitree.tablet.members.group.BlobGroups`.
    machine
        The state machine.
    channels
        The tablet, and in which groups it lies: channel 0 has the log, channel 1 snapshots.
    tablet
        Which tablet of the one group, from 1 on, below 2^64.
    settings
        How it runs.
    floor
        The generation of `NotLeader`, when an earlier attempt ended so.
    assigned
        The generation that the caller assigned to this attempt alone.

    Returns
    -------
    Tablet
        Leads, and may be used at once.

    Raises
    ------
    NotLeader
        Another candidate was faster, or has gone further.
    Unavailable
        Too few members answer; try again.
    TabletDamaged
        Confirmed entries can't be found: an operator must look.
    BadInput
        There is no such number of a tablet, or it is not said where it lies.
    """
    group = groups if isinstance(groups, Group) else None
    running, channels = _place(groups, channels, tablet)
    settings = settings or Settings()
    given = None if assigned is None else Generation(assigned)
    if assigned is None and isinstance(groups, JustOpened) and len(channels.groups()) == 1:
        # The opening of the group has just read the fence: the candidate need not ask for it.
        seen = groups.fence_seen(channels.tablet)
        given = None if seen is None else Generation(max(seen.generation + 1, floor) + 1)
    candidate = Candidate(channels, secrets.token_hex(16), given, floor)
    with without_collector():
        prepared = running.run(prepare(candidate))
        if isinstance(prepared, NotElected):
            raise refusal(prepared)
        # Read after the fence holds: the old leader's lease is counted from no earlier moment.
        fenced_ns = settings.clock()
        accepted = prepared.recovered.accepted
        fence = Fence(Generation(prepared.generation - 1), candidate.issuer)
        # The snapshot is large and the zero entry small: both travel at once.
        reading = _in_background(running, read_snapshot(channels, accepted, fence))
        elected = running.run(open_generation(channels, prepared.generation, prepared.recovered))
        if isinstance(elected, NotElected):
            raise refusal(elected)
        state, commands = replayed(machine, accepted, reading.result())
    # Last: loading the state takes a part of that time.
    wait_until(settings.clock, lease.ready_at(accepted, fenced_ns))
    commits = Commits(machine, open_ledger(channels.tablet, elected), state, commands, settings)
    commits.sent_entries = len(accepted)
    commits.sent_bytes = sum(len(entry.body) for _, entry in accepted)
    upkeep = Upkeep(running, channels, machine, commits, fence, accepted)
    return Tablet(running, channels, elected.generation, commits, upkeep, settings, group)


def _place(groups: Group | Groups, channels: Channels | None, tablet: int) -> tuple[Groups, Channels]:
    """Return what runs procedures, and where the tablet lies."""
    if channels is not None:
        return (groups.groups if isinstance(groups, Group) else groups), channels
    if not isinstance(groups, Group):
        raise BadInput(
            "groups without channels: say in which of them the tablet lies, or give one group that was opened"
        )
    if not 0 < tablet < 1 << TABLET_BITS:
        raise BadInput(f"a tablet's number is at least 1 and below 2^{TABLET_BITS}, not {tablet}")
    return groups.groups, in_one_group(TabletId(tablet), groups.group)


def refusal(result: NotElected) -> ReplitreeError:
    """Return what to raise when a candidate was not elected."""
    match result.reason:
        case Overtaken(generation):
            return NotLeader(
                f"a candidate after generation {generation} was faster; stand again if no leader answers", generation
            )
        case MissingEntries(places):
            named = ", ".join(str(place) for place in places[:5])
            return TabletDamaged(
                f"{len(places)} confirmed entries can't be found, such as {named}: bring the members that are away back, "
                "or look with `replitree tablet verify`"
            )
        case doubt:
            return Unavailable(f"too few members of a blob group answer well, try again: {doubt.reason}")


# --- the state ------------------------------------------------------------------------------------------------------------


def read_snapshot(channels: Channels, accepted: Accepted, fence: Fence) -> Procedure[Contents | ReplitreeError]:
    """Read the blobs that the log's begin refers to, if it is a snapshot, as who has set a fence."""
    if not accepted or not accepted[0][1].is_snapshot:
        return ()
    wanted = dict[GroupId, list[BlobId]]()
    for blob in own_references(channels.tablet, accepted[0][1]):
        wanted.setdefault(channels.group(blob.channel, blob.generation), []).append(blob)
    found = list[tuple[BlobId, bytes]]()
    for group, blobs in wanted.items():
        answer = yield ReadBlobs(group, tuple(sorted(blobs)), fence)
        if not isinstance(answer, Blobs):
            return Unavailable(f"the snapshot at {accepted[0][0]} can't be read now, try again: {answer}")
        found += answer.found
    return tuple(found)


def replayed(machine: Machine[State], accepted: Accepted, blobs: Contents | ReplitreeError) -> tuple[State, int]:
    """Return the state that a log stands for, and how many commands it has seen.

    Raises
    ------
    Unavailable
        The snapshot can't be read now.
    TabletDamaged
        It can't be read at all.
    ReplitreeError
        The machine failed.
    """
    if isinstance(blobs, ReplitreeError):
        raise blobs
    commands, place = 0, NOTHING
    try:
        state = machine.begin()
        for place, entry in accepted:
            if entry.is_snapshot:
                state, commands = snapshots.restored(machine, entry, place, blobs)
            for command in decode_commands(entry.body):
                state, _ = machine.apply(state, command)
                commands += 1
    except StoreError as error:
        raise TabletDamaged(f"{error}; look with `replitree tablet verify`") from error
    except Exception as error:
        raise machine_failed(f"command {commands}, when the log was read up to {place}", error) from error
    return state, commands


def _in_background(
    groups: Groups, procedure: Procedure[Contents | ReplitreeError]
) -> Future[Contents | ReplitreeError]:
    """Run a procedure in a thread of its own: the snapshot is read while the zero entry is stored."""
    future: Future[Contents | ReplitreeError] = Future()

    def work() -> None:
        try:
            future.set_result(groups.run(procedure))
        except BaseException as error:  # noqa: BLE001 - raised where the result is waited for
            future.set_exception(error)

    threading.Thread(target=work, name="tablet-snapshot", daemon=True).start()
    return future
