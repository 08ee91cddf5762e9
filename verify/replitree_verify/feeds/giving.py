"""What the code of a replica does with the feed: each result is worked out once for all states that agree in what it reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from replitree.errors import BadInput, ReplicaUnavailable
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.feed.definition import EntryFeed
from replitree.wire.feed_errors import FeedGap, FeedOff, OffsetExpired
from replitree_verify.feeds.desk import Desk, Kept, Standing, Written, desk_of
from replitree_verify.feeds.power import Killed, Machine
from replitree_verify.feeds.state import FeedState, Seat

EXPIRED, GAP, OFF, UNAVAILABLE, REFUSED = "expired", "gap", "off", "unavailable", "refused"


class Answer(NamedTuple):
    """What a replica says to a reader.

    Attributes
    ----------
    reached
        Up to where it gives the feed.
    feed
        Index, time in microseconds and feed of each entry that feeds anything.
    error, at
        Why it gives nothing, and the index that it names with it.
    lacking
        The parts that it names and that have no folder for the reader.
    """

    reached: int = 0
    feed: tuple[tuple[LogIndex, int, EntryFeed], ...] = ()
    error: str = ""
    at: int = 0
    lacking: tuple[str, ...] = ()


class Given(NamedTuple):
    """What a replica says to readers that begin at 0, at 1, and so on: of all that it has, and of one entry only."""

    whole: tuple[Answer, ...]
    single: tuple[Answer, ...]


@lru_cache(1 << 16)
def _given(standing: Standing, broken: tuple[str, ...], log: tuple[Written, ...], kept: Kept) -> Given:
    # A replica answers without coordination: what that has still of the log makes no difference.
    with desk_of(standing, log, 0, kept) as desk:
        desk.progress.hide(broken)
        # A reader that waits for the end of the log asks for nothing behind it.
        starts = tuple(LogIndex(start) for start in range((desk.progress.executed_end or 0) + 1))
        whole = tuple(_answer(desk, start, None) for start in starts)
        return Given(whole, tuple(_answer(desk, start, LogIndex(start + 1)) for start in starts[:-1]))


def _answer(desk: Desk, start: LogIndex, end: LogIndex | None) -> Answer:
    try:
        taken = desk.feeds.take(start, end, 0.0)
    except OffsetExpired as error:
        return Answer(error=EXPIRED, at=error.index)
    except FeedGap as error:
        return Answer(error=GAP, at=error.index)
    except FeedOff:
        return Answer(error=OFF)
    except ReplicaUnavailable:
        return Answer(error=UNAVAILABLE)
    except BadInput:
        return Answer(error=REFUSED)
    fed = tuple((each.index, each.timestamp_us, each.feed) for each in taken.entries)
    return Answer(taken.reached, fed, lacking=desk.lacks(taken.parts))


def given_by(seat: Seat, state: FeedState) -> Given:
    """Return what a replica answers to readers that begin at any index up to the end of what it has executed."""
    # For how long the feed is kept, and by whom, matters when parts are removed only.
    kept = Kept(None if state.since is None else 0.0, state.kept.consumers)
    log = tuple(each for each in state.log if each.index < seat.standing.pointer)
    return _given(seat.standing, seat.broken, log, kept)


@lru_cache(1 << 16)
def first_known(standing: Standing, log: tuple[Written, ...]) -> int:
    """Return the index from which on the journal of a replica knows every entry."""
    with desk_of(standing, log, 0, Kept(0.0)) as desk:
        desk.versions.journal.read()
        return desk.versions.journal.first


@lru_cache(1 << 16)
def _after(
    do: Callable[..., None], standing: Standing, log: tuple[Written, ...], first: int, kept: Kept, *arguments: Any
) -> Standing:
    with desk_of(standing, log, first, kept) as desk:
        do(desk, *arguments)
        return desk.standing


def pulled(seat: Seat, state: FeedState, end: int) -> Standing:
    """Return a replica whose version log has what a pull up to an index has brought."""
    # What keeps the feed is left out: a pull removes nothing, and one result serves all states that differ in that.
    return _after(Desk.pull, seat.standing, state.log, state.first, Kept(0.0), end)


def caught_up(seat: Seat, state: FeedState) -> Standing:
    """Return a replica whose version log has caught up with where it stands, as far as it can."""
    return _after(Desk.catch_up, seat.standing, state.log, state.first, Kept(0.0))


def cleared(seat: Seat, state: FeedState) -> Standing:
    """Return a replica without the old parts and the entries that nothing keeps."""
    return _after(Desk.clear, seat.standing, state.log, state.first, state.kept)


def fetched(seat: Seat, state: FeedState) -> Standing:
    """Return a replica with the parts that only the feed needs and that another one has."""
    others = tuple((each.name, frozenset(dict(each.disk)).difference(each.broken)) for each in state.others(seat))
    return _after(Desk.fetch, seat.standing, state.log, state.first, state.kept, others)


def packed(seat: Seat, state: FeedState) -> Standing:
    """Return a replica that has packed its old parts, and removed the copies that no reader needs."""
    return _after(Desk.pack, seat.standing, state.log, state.first, state.kept)


def leased(seat: Seat, state: FeedState, start: int) -> Standing:
    """Return a replica with a reader that begins at an index, if it gives the feed from there on."""
    try:
        return _after(Desk.lease, seat.standing, state.log, state.first, state.kept, start)
    except (OffsetExpired, FeedGap, FeedOff, ReplicaUnavailable, BadInput):
        return seat.standing


def killed_in(do: Callable[[Desk], None], seat: Seat, state: FeedState) -> frozenset[Standing]:
    """Return what is on the disk of a replica whose process ends while it packs or deletes, also with its machine."""
    found, step = set[Standing](), 0
    while after := _killed_at(do, seat.standing, state.log, state.first, state.kept, step):
        found.update(after)
        step += 1
    return frozenset(found)


@lru_cache(1 << 16)
def _killed_at(
    do: Callable[[Desk], None], standing: Standing, log: tuple[Written, ...], first: int, kept: Kept, step: int
) -> tuple[Standing, ...]:
    found = list[Standing]()
    for loses_power in (False, True):
        with desk_of(standing, log, first, kept) as desk:
            machine = Machine(desk.root, step)
            try:
                with machine.running():
                    do(desk)
            except Killed:
                if loses_power:
                    machine.lose_power()
            else:
                return ()
            after = desk.standing
            assert after.packing is not None
            found.append(after._replace(packing=after.packing._replace(reading=())))
    return tuple(found)


def can_be_consumed(seat: Seat, state: FeedState, index: int) -> bool:
    """Return whether a replica makes a consumer that begins at an index."""
    return _can_be_consumed(seat.standing, seat.broken, state.log, Kept(None if state.since is None else 0.0), index)


@lru_cache(1 << 16)
def _can_be_consumed(
    standing: Standing, broken: tuple[str, ...], log: tuple[Written, ...], kept: Kept, index: int
) -> bool:
    with desk_of(standing, log, 0, kept) as desk:
        desk.progress.hide(broken)
        if index > (desk.progress.executed_end or 0):
            return False
        try:
            desk.feeds.check_from(LogIndex(index))
        except (OffsetExpired, FeedOff, ReplicaUnavailable):
            return False
    return True


def forget_all() -> None:
    """Forget every result: the code is about to change."""
    for known in (_given, first_known, _after, _can_be_consumed, _killed_at):
        known.cache_clear()
