"""Select merges: which neighbouring parts to make one of next.

A row is rewritten by every merge it goes through, and every part costs each read something.  The selector keeps both small: it
waits until a merge is worth its bytes, and it waits less the more parts there would be without it.

Guarantees:

* Sources are neighbours of one partition, in order, at least two, all of them free, and no part is in two choices.  A part that
  is not free is never chosen and never jumped over.
* A result has at most `part_bytes_max`, and all results of one call together have at most `bytes_max` bytes, as far as the
  sources tell.
* There are never more than `merges_max` merges under way, and the last free slots are kept for small ones, so that a merge of
  an hour does not let the parts of new inserts pile up behind it.
* A pure function of its arguments: ages come in as data, ties are broken by the order of the parts.

**Sizes.**  A part is as large as its files, or as `row_bytes_min` for each row if that is more: a merge decodes, orders and
encodes every row, however few bytes they are on disk.  By bytes alone, well compressed rows cost nothing: all parts seem as
small as a new one, and a part of millions of rows is rewritten with each handful of new ones.

**What is looked at.**  A *span* is a longest stretch of neighbours none of which is of a higher power of two than a given one:
a larger part, one that is not free, or the end of the partition bounds it.  Spans are nested like brackets.  One that is too
large for a merge is cut, from the left, into pieces that are not.

**What is worth it.**  The *fan-in* of a merge is exp(H), H being the entropy of its sources' shares in the result: n for n
equal sources, nearly 1 for a large and a tiny one.  A merge of S bytes lifts its rows by S·H in all, when a row's height is the
logarithm of the size of its part.  A row of part size s in a partition of size P can rise by log(P/s).  So if every merge has a
fan-in of f or more, a row is rewritten at most log(P/s) / log(f) times on average, however sizes are mixed.  A span is merged
when one of these holds:

* *Its fan-in is high enough*: `fan_in_max` if that leaves no more than `parts_calm` parts of the partition, and less the more
  parts it would leave, down to `fan_in_min` at `parts_crowded`.  Of a span and those inside it, the highest fan-in wins.
* *It has waited long enough.*  Each part too many is taken to be worth `wait_bytes_per_s`, or `finished_bytes_per_s` when
  nothing has come into the partition for `finished_after_s`.  When the wait since its youngest part came has cost as much as
  the merge, it is merged: at most twice the price of knowing the future, like skis that may be rented or bought.  What has an H
  below 1 is worth less in proportion: a late row in a finished partition does not rewrite all of it.  So lonely parts are
  merged in the end, a finished partition becomes one part
  (a tiny one beside a huge one stays: it is not worth that work for years), and what that costs is bounded in bytes per second.

What costs the fewest bytes for each part that goes is begun first.

Cost: linear in the parts that are passed in; nothing is remembered between calls.  Pass the partitions that have changed, and
all of them now and then, for their age.  When slots are few, large merges are left out; call again when one is free, and until
nothing is found.

Absent on purpose: who may choose (the leader), how a choice becomes an entry, how merges are run, and why a part is not free.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from replitree.protocol.core.parts import Part

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

PATIENCE_STEPS = 8
"""Steps from `fan_in_max` to `fan_in_min`."""

TIER_MAX = 1 << 10
"""Above the tier of every part."""


@dataclass(frozen=True, slots=True)
class SelectorSettings:
    """How patient the selector is.  ``docs/merge-selection.md`` says why the defaults are what they are.

    Attributes
    ----------
    fan_in_max, fan_in_min
        The fan-in that a merge must have in a calm partition, and in a crowded one.
    parts_calm, parts_crowded
        Free parts of a partition, after the merges chosen, up to which it is calm, and from which on it is crowded.
    sources_max
        Parts in one merge.
    part_bytes_max
        Size of a result.
    row_bytes_min
        What merging one row costs at least, in bytes.
    part_overhead_bytes
        What opening, reading and registering a part costs, whatever its size, in bytes that could be merged instead.
    wait_bytes_per_s, finished_bytes_per_s
        What it is worth to have one part less for one second, in bytes merged: in general, and in a finished partition.
    finished_after_s
        A partition is finished when its youngest part is this old, in seconds.
    merges_max
        Merges under way at once.
    last_slot_bytes_max
        Size of a result for which the last free slot may be taken.
    """

    fan_in_max: float = 16.0
    fan_in_min: float = 3.0
    parts_calm: int = 12
    parts_crowded: int = 50
    sources_max: int = 100
    part_bytes_max: int = 150 * GIB
    row_bytes_min: int = 16
    part_overhead_bytes: int = 256 * KIB
    wait_bytes_per_s: int = 64
    finished_bytes_per_s: int = KIB
    finished_after_s: int = 86_400
    merges_max: int = 8
    last_slot_bytes_max: int = 64 * MIB

    def size(self, rows: int, bytes_: int) -> int:
        """Return the size of a part or a merge, for which all limits hold."""
        return max(bytes_, rows * self.row_bytes_min)

    def __post_init__(self) -> None:
        assert self.fan_in_max >= self.fan_in_min > 1
        assert self.parts_crowded > self.parts_calm >= 0
        assert self.sources_max >= 2
        assert self.part_bytes_max > 0
        assert self.last_slot_bytes_max > 0
        assert self.row_bytes_min >= 0
        assert self.part_overhead_bytes > 0
        assert self.wait_bytes_per_s >= 0
        assert self.finished_bytes_per_s >= 0
        assert self.merges_max >= 1


@dataclass(frozen=True, slots=True)
class MergeCandidate:
    """An active part, as the chooser sees it.

    Attributes
    ----------
    part, rows, bytes
        Its name, and what is in it.
    age_s
        Seconds since it came into being, by an insert or by a merge.
    free
        Whether it may be merged: settled, present at the chooser, and neither source nor result of anything under way.
    """

    part: Part
    rows: int
    bytes: int
    age_s: int
    free: bool = True


@dataclass(frozen=True, slots=True)
class Choice:
    """A merge to be done.

    Attributes
    ----------
    sources
        Neighbours of one partition, ascending.
    rows, bytes
        Their sums.
    score
        Bytes to be merged for each part that goes, `part_overhead_bytes` included; the smallest is the most urgent.
    """

    sources: tuple[Part, ...]
    rows: int
    bytes: int
    score: float


def select_merges(
    candidates: Sequence[MergeCandidate],
    settings: SelectorSettings | None = None,
    *,
    running: Sequence[int] = (),
    bytes_max: int | None = None,
) -> tuple[Choice, ...]:
    """Choose the merges to begin now, the most urgent first.

    Parameters
    ----------
    candidates
        All active parts of the table, or of the partitions in question, ascending.
    settings
        The defaults if None.
    running
        Size of each merge under way, as `SelectorSettings.size` says.
    bytes_max
        Bytes that all results together may take: what is free on disk, with a reserve.  None: no limit.
    """
    assert all(left.part < right.part for left, right in pairwise(candidates)), "candidates ascend"
    settings = settings or SelectorSettings()
    slots = _Slots(settings, running, bytes_max)
    found = [
        choice
        for _, group in groupby(candidates, key=_partition_of)
        for choice in _choices_in_partition(tuple(group), settings, slots.size_max())
    ]
    found.sort(key=lambda choice: (choice.score, choice.sources[0]))
    return tuple(choice for choice in found if slots.take(choice))


def optimize(
    candidates: Sequence[MergeCandidate],
    partition: str | None = None,
    settings: SelectorSettings | None = None,
    *,
    final: bool = False,
    bytes_max: int | None = None,
) -> tuple[Choice, ...]:
    """Choose, for each partition, one merge of as many parts as possible, as ``OPTIMIZE`` asks for.

    Parts that are not free divide a partition; the longest stretch is taken.  `sources_max`, `part_bytes_max` and `merges_max`
    do not hold here: a user asked for it.

    Parameters
    ----------
    candidates
        All active parts of the table, ascending.
    partition
        Only this one.
    settings
        The defaults if None; only `part_overhead_bytes` counts, for the score.
    final
        Take whole partitions only, with those that have a single part, because a policy may have something to do inside it.  A
        partition with a part that is not free is left out: ask again later.
    bytes_max
        Bytes that all results together may take; what has no room is left out.  None: no limit.
    """
    assert all(left.part < right.part for left, right in pairwise(candidates)), "candidates ascend"
    settings = settings or SelectorSettings()
    room = _or_no_limit(bytes_max)
    found: list[Choice] = []
    for name, group in groupby(candidates, key=_partition_of):
        members = tuple(group)
        begin, end = max(_free_runs(members), key=lambda run: run[1] - run[0], default=(0, 0))
        enough = end - begin == len(members) if final else end - begin >= 2
        if partition not in (None, name) or not enough:
            continue
        choice = _choice(members[begin:end], settings)
        if choice.bytes <= room:
            found.append(choice)
            room -= choice.bytes
    return tuple(found)


# --- what is looked at ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stretch:
    """Neighbours of a partition from `begin` to before `end`, none of a higher power of two than `tier`.

    A part's weight is its size with `part_overhead_bytes`.  `weight_log` is the sum of w·log(w) over the weights, so that the
    entropy of the shares is log(weight) - weight_log / weight.  `age_s` is that of the youngest.  `cut`: something in it was
    too large and has been cut into pieces; these come first, so it is not cut again.
    """

    begin: int
    end: int
    tier: int
    weight: int
    weight_log: float
    age_s: int
    cut: bool = False

    @property
    def parts(self) -> int:
        return self.end - self.begin

    @property
    def entropy(self) -> float:
        return math.log(self.weight) - self.weight_log / self.weight

    def absorb(self, right: _Stretch) -> None:
        """Take in the neighbour on the right.  The tier stays."""
        assert self.end == right.begin
        self.end = right.end
        self.weight += right.weight
        self.weight_log += right.weight_log
        self.age_s = min(self.age_s, right.age_s)
        self.cut |= right.cut


def _free_runs(members: Sequence[MergeCandidate]) -> list[tuple[int, int]]:
    """Return where stretches of free parts begin and end."""
    runs: list[tuple[int, int]] = []
    begin = 0
    for free, group in groupby(members, key=lambda member: member.free):
        end = begin + sum(1 for _ in group)
        if free:
            runs.append((begin, end))
        begin = end
    return runs


def _spans(members: Sequence[MergeCandidate], begin: int, end: int, rule: _Rule) -> Iterator[_Stretch]:
    """Give the spans of a run, or the pieces of those that are too large, each after the ones inside it.

    What is given is valid until the next is asked for.
    """
    # The stack has neighbours from left to right, with falling tiers.
    stack: list[_Stretch] = []
    for position in range(begin, end + 1):
        single = _single(members, position, rule.settings) if position < end else None
        tier = single.tier if single else TIER_MAX
        # A part of a higher tier ends the stretches of lower ones.
        while stack and stack[-1].tier < tier:
            if stack[-1].parts > 1:
                yield from _whole_or_cut(members, stack[-1], rule)
            if len(stack) == 1 or stack[-2].tier > tier:
                break
            right = stack.pop()
            stack[-1].absorb(right)
        if single and stack and stack[-1].tier <= tier:
            stack[-1].absorb(single)
            stack[-1].tier = tier
        elif single:
            stack.append(single)


def _single(members: Sequence[MergeCandidate], position: int, settings: SelectorSettings) -> _Stretch:
    member = members[position]
    weight = settings.size(member.rows, member.bytes) + settings.part_overhead_bytes
    return _Stretch(position, position + 1, weight.bit_length(), weight, weight * math.log(weight), member.age_s)


def _whole_or_cut(members: Sequence[MergeCandidate], span: _Stretch, rule: _Rule) -> Iterator[_Stretch]:
    """Give the span, or pieces of it as large as a merge may be, or nothing if it holds pieces already."""
    fits = rule.can_be_one(span.parts, span.weight)
    if fits:
        yield span
    if fits or span.cut:
        return
    span.cut = True
    piece = _single(members, span.begin, rule.settings)
    for position in range(span.begin + 1, span.end):
        single = _single(members, position, rule.settings)
        if rule.can_be_one(piece.parts + 1, piece.weight + single.weight):
            piece.absorb(single)
        else:
            yield piece
            piece = single
    yield piece


# --- what is worth it -----------------------------------------------------------------------------------------------------


class _Option(NamedTuple):
    """A stretch that may be merged, with the entropy of its shares; `waited`: it has, and is merged whatever the fan-in."""

    begin: int
    end: int
    entropy: float
    waited: bool


class _Rule:
    """What may be merged, and what is worth it."""

    def __init__(self, members: Sequence[MergeCandidate], settings: SelectorSettings, size_max: float) -> None:
        finished = min(member.age_s for member in members) >= settings.finished_after_s
        self.settings = settings
        self.size_max = size_max
        self.value_per_s = settings.finished_bytes_per_s if finished else settings.wait_bytes_per_s
        self.entropy_min = math.log(settings.fan_in_min)

    def can_be_one(self, parts: int, weight: int) -> bool:
        """Whether one merge may ever take so much."""
        size = weight - parts * self.settings.part_overhead_bytes
        return parts <= self.settings.sources_max and size <= self.settings.part_bytes_max

    def option(self, stretch: _Stretch) -> _Option | None:
        """Return what may be done with a stretch now, if it is worth it in some partition."""
        if stretch.parts < 2 or stretch.weight - stretch.parts * self.settings.part_overhead_bytes > self.size_max:
            return None
        entropy = stretch.entropy
        value_per_s = self.value_per_s * (stretch.parts - 1) * min(1.0, entropy)
        waited = stretch.age_s * value_per_s >= stretch.weight
        return _Option(stretch.begin, stretch.end, entropy, waited) if waited or entropy >= self.entropy_min else None


def _choices_in_partition(
    members: Sequence[MergeCandidate], settings: SelectorSettings, size_max: float
) -> tuple[Choice, ...]:
    """Return the merges of one partition, with as high a fan-in as the number of parts that they leave allows."""
    rule = _Rule(members, settings, size_max)
    options: list[_Option] = []
    for begin, end in _free_runs(members):
        found = (rule.option(span) for span in _spans(members, begin, end, rule))
        options += [option for option in found if option]
    parts = sum(member.free for member in members)
    taken: list[_Option] = []
    # A high fan-in is asked for first.  As more parts would be left than a calm partition has, a lower one will do.
    for step in range(PATIENCE_STEPS + 1):
        share = step / PATIENCE_STEPS
        parts_max = settings.parts_calm + (settings.parts_crowded - settings.parts_calm) * share
        fan_in = settings.fan_in_max * (settings.fan_in_min / settings.fan_in_max) ** share
        taken = _taken(options, math.log(fan_in))
        if parts - sum(option.end - option.begin - 1 for option in taken) <= parts_max:
            break
    return tuple(_choice(members[option.begin : option.end], settings) for option in taken)


def _taken(options: Sequence[_Option], entropy_min: float) -> list[_Option]:
    """Return the best of the options, disjoint and in order.

    Each option comes after those inside it.
    """
    taken: list[_Option] = []
    for option in options:
        if not option.waited and option.entropy < entropy_min:
            continue
        end = len(taken)
        # A piece of a stretch has options in the pieces on its right, which are in the list already.
        if end and taken[-1].begin >= option.end:
            end = bisect_left(taken, option.end, key=lambda each: each.begin)
        begin = end
        while begin and taken[begin - 1].end > option.begin:
            begin -= 1
        # A merge that has waited replaces those inside it, because their results would only be rewritten by it.
        if option.waited or all(other.entropy <= option.entropy for other in taken[begin:end]):
            taken[begin:end] = [option]
    return taken


# --- what there is room for -----------------------------------------------------------------------------------------------


def _partition_of(candidate: MergeCandidate) -> str:
    return candidate.part.partition


def _or_no_limit(bytes_max: int | None) -> float:
    return math.inf if bytes_max is None else float(bytes_max)


def _choice(sources: Sequence[MergeCandidate], settings: SelectorSettings) -> Choice:
    rows, bytes_ = sum(source.rows for source in sources), sum(source.bytes for source in sources)
    weight = settings.size(rows, bytes_) + len(sources) * settings.part_overhead_bytes
    return Choice(tuple(source.part for source in sources), rows, bytes_, weight / max(1, len(sources) - 1))


class _Slots:
    """The merges that may be under way at once, and the bytes that they may still take.

    About half of them may be of any size.  Of the others each must be smaller than the one before, exponentially, down to
    `last_slot_bytes_max`.  So there is always a slot that a large merge does not block, and small ones do not count as large.
    """

    def __init__(self, settings: SelectorSettings, running: Sequence[int], bytes_max: int | None) -> None:
        self.settings = settings
        # How large a merge may be beside none, one, … that are at least as large.
        self.limits: list[float] = []
        last = min(settings.last_slot_bytes_max, settings.part_bytes_max)
        for larger in range(settings.merges_max):
            share = min(1.0, (settings.merges_max - larger - 1) / (settings.merges_max / 2))
            if settings.merges_max == 1 or share == 1.0:
                self.limits.append(float(settings.part_bytes_max))
            else:
                self.limits.append(last * math.exp(share * math.log(settings.part_bytes_max / last)))
        self.running = sorted(running, reverse=True)
        self.room = _or_no_limit(bytes_max)

    def take(self, choice: Choice) -> bool:
        """Take a slot and room for a merge, if there are.  Returns whether."""
        size = self.settings.size(choice.rows, choice.bytes)
        if size > self.size_max() or choice.bytes > self.room:
            return False
        self.running = sorted([*self.running, size], reverse=True)
        self.room -= choice.bytes
        return True

    def size_max(self) -> float:
        """Return how large a merge may be that begins now; below zero if none may."""
        if len(self.running) >= len(self.limits):
            return -1.0
        # The rank of the largest merge that may be added; the merges behind it move on by one.
        rank = len(self.running)
        while rank and self.running[rank - 1] <= self.limits[rank]:
            rank -= 1
        before = self.running[rank - 1] if rank else math.inf
        return min(self.limits[rank], before)
