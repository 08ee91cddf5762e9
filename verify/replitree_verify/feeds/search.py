"""The search of a model of the feed, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import Entry, FailEntry, GetEntry, LostEntry, SettleEntry, quorum_of
from replitree.protocol.feed.definition import EMPTY
from replitree.replica.kit import needed_parts, old_parts, packed_parts, version_log
from replitree.replica.perform import versions
from replitree_verify.engine.small_search import Rules, Searched, patched, search_all
from replitree_verify.feeds.giving import EXPIRED, GAP, OFF, REFUSED, Answer, first_known, forget_all, given_by
from replitree_verify.feeds.model import Model
from replitree_verify.feeds.rows import Emitted, difference, emitted, named_by, net_of, shown_in
from replitree_verify.feeds.space import Space
from replitree_verify.feeds.state import FeedState, Seat
from replitree_verify.patches.patch import Patch

SMALL = {
    (versions, "SEGMENT_ENTRIES"): 2,
    (version_log, "RECENT_ENTRIES"): 0,
    (old_parts, "PACK_PARTS_MIN"): 1,
    (old_parts, "PACK_PARTS_MAX"): 2,
    (packed_parts, "COPY_S"): 0.0,
    (needed_parts, "RECENT_PARTS"): 1,
    (needed_parts, "MOVED_AT_ONCE"): 1,
    (needed_parts, "CHUNK_BITS"): 1,
}
"""Segments and packs are so small here that models have several, and nothing stays because it is new.

Of the parts that the feed needs one keeps its name in memory, and two blocks make a chunk of rows.
"""

SILENT = ("fail", "merge", "alter", "storage", "view", "roll")


def search(model: Model, mutant: Patch | None = None) -> Searched:
    """Search a model; all else as of `search_all`."""
    space = Space(model)
    forget_all()
    try:
        with patched(SMALL):
            found = search_all(space, Rules(always=violations, at_rest=wrong_at_rest), mutant)
    finally:
        forget_all()
    return replace(found, probes=frozenset(space.probes))


def violations(state: FeedState) -> Iterator[str]:
    """Give what does not hold in a state."""
    consumer = state.consumer
    for seat in state.joined:
        given = given_by(seat, state)
        yield from _wrong_packs(seat, state, given.whole)
        yield from _wrong_errors(seat, state, given.whole)
        for answers in given:
            for start, answer in enumerate(answers):
                if not answer.error:
                    yield from _wrong_rows(seat, state, start, answer)
        if consumer is None or consumer.is_expired or consumer.seat != seat.name or consumer.index >= len(given.whole):
            continue
        # No hold helps against a gap, whose rows are lost, and a replica that is behind catches up.
        if given.whole[consumer.index].error in {EXPIRED, OFF}:
            yield f"F7: {seat.name} does not give the feed from {consumer.index} on, where its consumer stands"


def _wrong_packs(seat: Seat, state: FeedState, answers: tuple[Answer, ...]) -> Iterator[str]:
    """PACKED: nothing that the time of the feed keeps is lost by packing, and no reader loses what it has a lease on."""
    packing, since = seat.standing.packing, state.kept.since
    if packing is None:
        return
    folders = {*seat.standing.held, *seat.standing.old}
    lacking = next((part for part in packing.reading if part not in folders), None)
    if lacking is not None:
        yield f"PACKED: {seat.name} has no folder of {lacking}, on which a reader has a lease"
    for written in state.log:
        at = written.index
        is_kept = since is not None and written.written_ms >= since * 1_000
        if is_kept and at < len(answers) and answers[at].error == EXPIRED:
            yield f"PACKED: {seat.name} does not give the feed from {at} on, which its time keeps"


def _wrong_errors(seat: Seat, state: FeedState, answers: tuple[Answer, ...]) -> Iterator[str]:
    """FROM, F5: what a replica does not give, it says so, and from where on it gives everything."""
    for start, answer in enumerate(answers):
        if answer.error == EXPIRED:
            if answer.at <= start:
                yield f"FROM: {seat.name} says that its feed begins at {answer.at}, and does not give it from {start} on"
            elif answer.at < len(answers) and answers[answer.at].error == EXPIRED:
                yield f"FROM: {seat.name} says that its feed begins at {answer.at}, and does not give it from there on"
        elif any(later.error == EXPIRED for later in answers[start:]) and not answer.error:
            yield f"FROM: {seat.name} gives the feed from {start} on, and not from a later index on"
        if answer.error == REFUSED:
            yield f"F5: {seat.name} says that the log does not go up to {start}, and has executed it"
        if answer.error == GAP and not any(isinstance(each.entry, LostEntry) for each in state.log):
            yield f"F5: {seat.name} says that rows of {answer.at} were lost"


def _wrong_rows(seat: Seat, state: FeedState, start: int, answer: Answer) -> Iterator[str]:
    """F1 to F5 of one answer."""
    disk, told = dict(seat.disk), dict(state.told)
    fed, last_us = {index: (us, feed) for index, us, feed in answer.feed}, 0
    shown = shown_in(state.log, state.results)
    for written in state.log:
        index, entry = written.index, written.entry
        if not start <= index < answer.reached:
            continue
        us, feed = fed.get(index, (0, EMPTY))
        named = named_by(feed.units)
        lacking = next((name for name in named if name not in disk or name in answer.lacking), None)
        if lacking is not None:
            yield f"F5: {seat.name} gives entry {index} by {lacking}, which it does not have"
            return
        emission = emitted(feed.units, us, disk)
        if index in fed:
            if us <= last_us:
                yield f"F2: at {seat.name} the time of entry {index} does not follow that of the entry before it"
            last_us = us
        if index in fed and emission != told.get(index, emission):
            yield f"F2: {seat.name} gives {_text(emission)} for entry {index}, and a reader got {_text(told[index])}"
        yield from _wrong_insert(state, index, entry, emission)
        if type(entry).__struct_config__.tag in SILENT and emission.rows:
            yield f"F4: {seat.name} gives {_text(emission)} for entry {index}, which changes no row"
        known = shown[index]
        if known is None:
            yield f"F5: {seat.name} gives entry {index}, of which no replica has all parts"
            return
        if isinstance(entry, LostEntry) and known[0] != known[1]:
            yield f"F5: {seat.name} gives entry {index}, by which rows were lost, without an error"
        elif net_of(emission) != difference(*known):
            yield f"F1: {seat.name} gives {_text(emission)} for entry {index}, and reads show {dict(difference(*known))}"


def _wrong_insert(state: FeedState, index: LogIndex, entry: Entry, emission: Emitted) -> Iterator[str]:
    """F3: the rows of an insert come where it counts, and nowhere else."""
    if quorum_of(entry) and emission.rows:
        yield f"F3: entry {index} gives {_text(emission)}, and is open"
    inserts = {each.index: each.entry for each in state.log if isinstance(each.entry, GetEntry)}
    for failed in (each.entry for each in state.log if isinstance(each.entry, FailEntry)):
        letter = inserts[LogIndex(failed.index)].insert
        if any(row[0] == letter for _, row in emission.rows):
            yield f"F3: entry {index} gives rows of {letter}, which has failed"
    if not isinstance(entry, GetEntry | SettleEntry):
        return
    came = {row[0] for kind, row in emission.rows if kind == "insert"}
    for at, other in state.told:
        again = sorted(came.intersection(row[0] for kind, row in other.rows if kind == "insert"))
        if again and at < index:
            yield f"F3: entry {index} gives rows of {again[0]} once more, which came at {at}"


def wrong_at_rest(state: FeedState) -> Iterator[str]:
    """COMPLETE: what one replica gives, every other one gives that knows the entries, where nothing is left to do."""
    if state.since != 0:
        return  # what has expired is not fetched any more
    # A replica for which entries are gone recovers before it goes on.
    seats = [each for each in state.joined if each.standing.pointer >= state.first]
    given = {seat.name: [not answer.error for answer in given_by(seat, state).whole] for seat in seats}
    for seat in seats:
        known = first_known(seat.standing, tuple(each for each in state.log if each.index < seat.standing.pointer))
        for start in range(known, len(given[seat.name]) - 1):
            other = next(
                (each.name for each in seats if start < len(given[each.name]) - 1 and given[each.name][start]), None
            )
            if other is not None and not given[seat.name][start]:
                yield f"COMPLETE: {other} gives the feed from {start} on, and {seat.name} does not"


def _text(emission: Emitted) -> str:
    return ", ".join(f"{kind} {row}" for kind, row in emission.rows) or "nothing"
