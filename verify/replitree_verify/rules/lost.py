"""What must hold of lost parts in every state, and at the end: `LOST`, and what the other invariants allow because of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.core.entries import FailEntry, decode_block
from replitree.protocol.core.parts import Part, inserted_part, parse_part
from replitree.protocol.state.registration import is_broken
from replitree_verify.process.lost_parts import STAGED
from replitree_verify.world.disk import requests_in, rows_in
from replitree_verify.world.history import Log, request_of

if TYPE_CHECKING:
    from replitree_verify.rules.invariants import Look


def has_lost_rows_at_most(rows: tuple[str, ...], content: str, log: Log) -> bool:
    """Whether a content is that of some rows without those of one or more parts that were lost."""
    have = rows_in(content)
    gone = {request_of(row) for row in rows if row not in have}
    # The rows of a part are lost together: of two losses a replica may have executed one.
    lost = [each.intersection(map(request_of, rows)) for each in log.losses(content.partition(":")[0])]
    explained = set[int]().union(*(each for each in lost if each <= gone))
    return bool(lost) and gone == explained and have == tuple(row for row in rows if request_of(row) not in gone)


def lost_at(insert: int, partition: str, log: Log) -> int | None:
    """Return the index of the entry that declares the part of an insert in one partition lost, mutated or not."""
    lost = ((parse_part(name), index) for name, index in log.lost.items())
    return next((index for part, index in lost if part[:3] == (partition, insert, insert)), None)


def is_lost_with(first: int, last: int, partition: str, log: Log) -> bool:
    """Whether the part of the insert at `first` in one partition was declared lost before `last`."""
    at = lost_at(first, partition, log)
    return at is not None and first < at < last


def tokens_go_with_lost_parts(look: Look) -> str | None:
    """LOST: the token of an insert is free from the moment that its only part is lost, not before, and no other token is.

    But for those that a failed quorum frees, and those that the drop of every partition lets another insert take over.
    """
    log = look.log
    if not log.lost:
        return None
    failed = {entry.index for _, entry in log.raw if isinstance(entry, FailEntry)}
    for index, entry in log.inserts:
        if index in failed or all(log.dropped_between(part.partition, index, log.end) for part in entry.parts):
            continue
        if index < log.first:
            continue  # a replica that declares a part lost can't know the tokens of an insert whose entry is gone
        names = [inserted_part(part.partition, LogIndex(index)).name for part in entry.parts]
        gone = [name for name in names if lost_at(index, parse_part(name).partition, log) is not None]
        for token in entry.blocks:
            path = layout.block(log.table, token)
            node = log.tree.get(path)
            is_taken = node is not None and decode_block(node.value, path).insert == entry.insert
            if is_taken and len(gone) == len(names) == 1:
                return f"LOST: {names[0]} is lost, and its token {token} is still taken"
            if not is_taken and len(gone) < len(names) and look.model.window is None:  # otherwise `WINDOW` tells
                what = f"only {', '.join(gone)}" if gone else "nothing"
                return f"LOST: {what} of entry {index} is lost, and its token {token} is free"
    return None


def nothing_is_made_of_lost_rows(look: Look) -> str | None:
    """LOST: no part that is whole and reaches over a lost one has rows of it."""
    log = look.log
    for lost in map(parse_part, log.lost):
        requests = log.lost_requests(lost.partition)
        for name in look.model.replicas:
            for part, content in log.registered(look.log.replica(name)).items():
                each = parse_part(part)
                has_rows = each != lost and each.covers(lost) and requests & {*requests_in(content)}
                if has_rows and not is_broken(content.encode()):
                    return f"LOST: {part} of {name} was made of rows of {lost.name}, which is lost"
    return None


def lost_parts_are_empty(look: Look) -> str | None:
    """LOST, when nothing is left to do: no replica shows lost rows, and all that is registered is equal and whole."""
    agreed: dict[str, str] = {}
    last = max(look.log.lost.values(), default=-1)
    for name in look.model.replicas:
        replica = look.log.replica(name)
        if look.log.pointer(replica) <= last or look.log.queue(replica):
            continue  # it does not know yet of the last loss
        for part, content in look.log.registered(replica).items():
            lost = look.log.lost_requests(parse_part(part).partition)
            still = [request for request in requests_in(content) if request in lost]
            if still:
                return f"LOST: {part} of {name} still has the rows of request {still[0]}"
            if agreed.setdefault(part, content) != content:
                return f"LOST: {part} of {name} is {content}, others have {agreed[part]}"
            if look.disk(name).content(part) != content and lost:
                return f"LOST: {part} of {name} is registered as {content}, its disk has other content"
    return None


def is_fragile(part: Part | str, look: Look) -> bool:
    """Whether a model lets the files of a part break, or of something that it is made of."""
    each = parse_part(part) if isinstance(part, str) else part
    if not look.model.fragile:
        return False
    near = [parse_part(name) for name in look.model.fragile if name != STAGED]
    return any(
        each.partition == one.partition and each.block_min <= one.block_max and one.block_min <= each.block_max
        for one in near
    )
