"""The node ``map`` of a sharded table: which shard owns each bucket of rows.

A row belongs to one *bucket*: ``pmod(hash(key columns), buckets)`` (`replitree.storage.schema.row_buckets` computes it).  Each
bucket has one owner, a *shard*: an ordinary table, known by its number.  The number of buckets is fixed when the table is
created; what changes is who owns them.  The version of the node is the version of the map.

Guarantees:

* Every bucket has exactly one owner, and the owner is a shard of the map.  `ShardMap` can't be made otherwise, neither from
  arguments nor from bytes; equal maps have equal bytes.
* `first_map` and `rebalanced` give each shard the number of buckets that its weight asks for, by the method of largest
  remainders: the share ``weight * buckets / sum of weights`` is rounded down, and what is left over goes, one bucket each, to
  the shards with the largest remainders.
* `rebalanced` moves the fewest buckets that lead to such numbers.  A shard that has too many gives away exactly those, and no
  other bucket changes its owner.  Between equal remainders the choice is free, so it falls on a shard that already owns the
  bucket in question.

To add a shard is to give it a weight.  A shard of weight 0 is to own nothing: it is being emptied, or is not in use yet.  A
shard that owns nothing can leave the map (`without_shard`, `protocol.upkeep.shard_removal`).  Then the map says which cuts need
it (`RemovedShards`), in a newer format: a process that does not know that would leave out rows of earlier cuts.

*Moves* are in the map from the moment at which buckets change their owner until the shard that owned them before, the source,
has no rows of theirs any more (`replitree.protocol.sharded.moves`).  Until then a read asks both (`shards_of`).  The moves of a
map change by `moving`, `turned_back` and `without_moves` only.  A map with moves has a newer format: a process that does not
know moves would leave out rows.

*Views.*  Every change of the materialised views of a table, or of those that write to it, is a change of its map
(`replitree.protocol.sharded.views`), so an insert that checks the map has checked its views.  Such a map has a newer format,
too: a process that does not know views would insert without them.

Absent on purpose: rows and their hash, the tables of the shards, and how far a move is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Literal, NewType

import msgspec
from msgspec import UNSET, UnsetType

from replitree.decoding import json_decoder
from replitree.errors import BadInput
from replitree.protocol.core.values import decode_value

MAP_FORMAT = 4
"""The newest one, of a map that shards have left; one with views has format 3, one with moves only 2, and any other one 1."""

BUCKETS_DEFAULT = 256

BUCKETS_MAX = 65_536
"""Buckets of a table at most: with the worst possible runs of owners the node has 600 KB, and ZooKeeper takes 1 MB."""

SHARDS_MAX = 256
"""Shards of a table at most: a command is one commit over all of them, which takes 12 ms for 128."""

SHARD_NUMBER_MAX = 9_999
KEY_COLUMNS_MAX = 8
WEIGHT_MAX = 1_000_000

Bucket = NewType("Bucket", int)
"""The number of a bucket, from 0 on."""

Shard = NewType("Shard", int)
"""The number of a shard, from 0 on."""

_UNOWNED = Shard(-1)
_POWERS_OF_TWO = frozenset(1 << exponent for exponent in range(BUCKETS_MAX.bit_length()))
_NO_POWER_OF_TWO = f"the number of buckets is a power of two up to {BUCKETS_MAX:,}, not {{}}"


class OwnerRun(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Neighbouring buckets of one owner: the shard, and how many they are."""

    shard: Shard
    buckets: int


class ShardWeight(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A shard, and which share of the buckets it is to own, relative to the other shards."""

    shard: Shard
    weight: int


class BucketRun(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Neighbouring buckets: the first one, and how many they are."""

    first: Bucket
    buckets: int


class Move(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Buckets whose rows move from one shard to another; the other one owns them already."""

    source: Shard
    target: Shard
    runs: tuple[BucketRun, ...]

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets, ascending."""
        return tuple(Bucket(run.first + at) for run in self.runs for at in range(run.buckets))


class RemovedShards(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What is known of the shards that have left a map.

    Attributes
    ----------
    since
        The first transaction of coordination from which on none of them is needed: cuts before it can't be read, and changes
        can't be read from there.  0: the table was made anew since, in an ensemble that has no such cuts.
    next
        The lowest number that no shard has had: a number is never used again.
    """

    since: int
    next: Shard


class ShardMap(msgspec.Struct, frozen=True):
    """Value of the node ``map``.

    Attributes
    ----------
    buckets
        How many there are: a power of two, which never changes.
    key
        The columns whose values decide on a row's bucket, by their names in data files, which a rename does not change.
    owner
        The owners of all buckets, from bucket 0 on, as runs; neighbouring runs have different shards.
    weights
        Every shard of the table, ascending.  The owners follow the weights after the buckets have moved.
    hash
        How the key is hashed: XXH64 with seed 42, as Spark's ``xxhash64`` does it.
    moves
        Buckets that move from shard to shard, by source and target; most maps have none.
    views
        The version of the table's node ``views``, if there are materialised views of the table, or such that write to it.
    removed
        What is known of the shards that have left the table; most maps have none.
    """

    buckets: int
    key: tuple[str, ...]
    owner: tuple[OwnerRun, ...]
    weights: tuple[ShardWeight, ...]
    hash: Literal["xxh64-42"] = "xxh64-42"
    moves: tuple[Move, ...] = ()
    views: int | UnsetType = UNSET
    removed: RemovedShards | UnsetType = UNSET
    format: int = 1

    def __post_init__(self) -> None:
        shards, weights = self.shards, [each.weight for each in self.weights]
        owners, lengths = [run.shard for run in self.owner], [run.buckets for run in self.owner]
        rules = (
            (self.buckets in _POWERS_OF_TWO, _NO_POWER_OF_TWO.format(self.buckets)),
            (
                1 <= len(self.key) == len(set(self.key)) <= KEY_COLUMNS_MAX,
                f"a key has 1 to {KEY_COLUMNS_MAX} different columns",
            ),
            (1 <= len(shards) <= SHARDS_MAX, f"a map has 1 to {SHARDS_MAX} shards, not {len(shards)}"),
            (list(shards) == sorted(set(shards)), "the shards are not in the order of their numbers"),
            (all(0 <= shard <= SHARD_NUMBER_MAX for shard in shards), f"a shard's number is 0 to {SHARD_NUMBER_MAX:,}"),
            (all(0 <= weight <= WEIGHT_MAX for weight in weights), f"a shard's weight is 0 to {WEIGHT_MAX:,}"),
            (any(weights), "every shard has the weight 0"),
            # The lengths first: a run of a damaged node may claim any number, and nothing may count that one by one.
            (
                all(length > 0 for length in lengths) and sum(lengths) == self.buckets,
                "the runs do not cover the buckets",
            ),
            (all(one != other for one, other in pairwise(owners)), "two neighbouring runs have the same owner"),
            (set(owners) <= set(shards), "a bucket is owned by a shard that the map does not have"),
            # What a newer format means is not known here: `decode_map` refuses it by its number.
            (
                self.format > MAP_FORMAT or self.format == _format_of(self.moves, self.views, self.removed),
                "a map with moves has another format than one without, and so has one with views, or that shards have left",
            ),
            (
                self.removed is UNSET or (self.removed.since >= 0 and max(shards, default=0) < self.removed.next),
                "the numbers of shards that have left the map are not below the next one",
            ),
        )
        for holds, problem in rules:
            # A ValueError, of which msgspec makes an error of its own where the map comes from bytes.
            if not holds:
                raise ValueError(problem)
        self._check_moves()

    def _check_moves(self) -> None:
        if not self.moves:
            return
        runs = [run for move in self.moves for run in move.runs]
        pairs = [(move.source, move.target) for move in self.moves]
        # As above: no run of a damaged node is counted one by one before it is known to lie among the buckets.
        if not all(run.buckets > 0 and 0 <= run.first <= self.buckets - run.buckets for run in runs):
            raise ValueError("a move has buckets that there are not")
        if pairs != sorted(set(pairs)) or any(
            source == target or source not in self.shards for source, target in pairs
        ):
            raise ValueError("the moves are not between different shards of the map, in their order")
        ordered = sorted((run.first, run.first + run.buckets) for run in runs)
        if not all(move.runs for move in self.moves) or any(end > first for (_, end), (first, _) in pairwise(ordered)):
            raise ValueError("a move has no buckets, or two moves have the same")
        owners = self.owners
        if any(
            {*owners[run.first : run.first + run.buckets]} != {move.target} for move in self.moves for run in move.runs
        ):
            raise ValueError("a bucket that moves is not owned by the shard to which it moves")

    @property
    def shards(self) -> tuple[Shard, ...]:
        """Every shard of the table, also one that owns no bucket, ascending."""
        return tuple(each.shard for each in self.weights)

    @property
    def since(self) -> int:
        """The first transaction whose cut the shards of the map have whole; 0: no shard has left it."""
        return 0 if self.removed is UNSET else self.removed.since

    @property
    def next_shard(self) -> Shard:
        """The lowest number that no shard of the table has had, unless the addition of one was cut off."""
        return Shard(max(self.shards) + 1) if self.removed is UNSET else self.removed.next

    @property
    def owners(self) -> tuple[Shard, ...]:
        """The owner of each bucket, from bucket 0 on."""
        return tuple(run.shard for run in self.owner for _ in range(run.buckets))

    def shards_of(self, buckets: Iterable[Bucket]) -> tuple[Shard, ...]:
        """Return the shards that can have rows of these buckets, ascending: their owners, and the sources of their moves."""
        wanted, owners = frozenset(buckets), self.owners
        sources = {move.source for move in self.moves if not wanted.isdisjoint(move.buckets)}
        return tuple(sorted({*(owners[bucket] for bucket in wanted), *sources}))


_decode = json_decoder(ShardMap).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def _format_of(moves: tuple[Move, ...], views: int | UnsetType, removed: RemovedShards | UnsetType = UNSET) -> int:
    """Return the format of a map: the lowest one whose readers know all that is in it."""
    if removed is not UNSET:
        return MAP_FORMAT
    return 3 if views is not UNSET else 2 if moves else 1


def encode_map(value: ShardMap) -> bytes:
    """Return the bytes of a node ``map``."""
    return _encode(value)


def decode_map(raw: bytes, where: str) -> ShardMap:
    """Read a node ``map``.

    Parameters
    ----------
    raw, where
        The node's value, and its path, for errors.

    Raises
    ------
    UnsupportedFormat
        It has a newer format, can't be read, or contradicts itself.
    """
    return decode_value(_decode, raw, where, MAP_FORMAT)


def first_map(key: Sequence[str], weights: Mapping[Shard, int], buckets: int = BUCKETS_DEFAULT) -> ShardMap:
    """Return the map of a new table.

    Parameters
    ----------
    key
        Names of the key columns; `replitree.storage.schema.row_buckets.shard_key` says which a table may have.
    weights
        Of each shard.
    buckets
        How many: a power of two.

    Raises
    ------
    BadInput
        No table can have such a map; says what is wrong.

    Examples
    --------
    >>> first_map(["id"], {Shard(0): 1, Shard(1): 1, Shard(2): 2}, 8).owners
    (0, 0, 1, 1, 2, 2, 2, 2)
    """
    # Here too, for a list of that length is made first.
    if buckets not in _POWERS_OF_TWO:
        raise BadInput(_NO_POWER_OF_TWO.format(buckets))
    return _balanced(key, (_UNOWNED,) * buckets, weights)


def rebalanced(shard_map: ShardMap, weights: Mapping[Shard, int]) -> ShardMap:
    """Return the map in which each shard owns the buckets that its weight asks for, as few of them moved as possible.

    Parameters
    ----------
    shard_map
        The map before.
    weights
        Of each shard from now on, at least of each shard that the map has; one that it does not have is added.

    Raises
    ------
    BadInput
        No table can have these weights; says what is wrong.

    Examples
    --------
    >>> before = first_map(["id"], {Shard(0): 1, Shard(1): 1}, 8)
    >>> rebalanced(before, {Shard(0): 1, Shard(1): 1, Shard(2): 2}).owners
    (0, 0, 2, 2, 1, 1, 2, 2)
    """
    balanced = _balanced(shard_map.key, shard_map.owners, weights)
    removed = shard_map.removed
    if removed is not UNSET:
        removed = msgspec.structs.replace(removed, next=max(removed.next, Shard(max(weights) + 1)))
    return _same(shard_map, owner=balanced.owner, weights=balanced.weights, moves=(), removed=removed)


def moving(before: ShardMap, after: ShardMap) -> ShardMap:
    """Return the map `after` with what moves: the buckets that have another owner in it than in the map `before`.

    Parameters
    ----------
    before
        A map without moves.
    after
        One of the same buckets, without moves, that has every shard of `before`: as of `rebalanced`, or `handed_over`.

    Examples
    --------
    >>> before = first_map(["id"], {Shard(0): 1, Shard(1): 1}, 8)
    >>> moving(before, rebalanced(before, {Shard(0): 2, Shard(1): 1, Shard(2): 1})).moves
    (Move(source=1, target=2, runs=(BucketRun(first=6, buckets=2),)),)
    """
    assert not before.moves
    assert not after.moves
    assert set(before.shards) <= set(after.shards)
    changes = [*zip(before.owners, after.owners, strict=True)]
    found: dict[tuple[Shard, Shard], list[BucketRun]] = {}
    first = 0
    for change, run in groupby(changes):
        length = len(list(run))
        if change[0] != change[1]:
            found.setdefault(change, []).append(BucketRun(Bucket(first), length))
        first += length
    moves = tuple(Move(*pair, tuple(found[pair])) for pair in sorted(found))
    return _same(after, moves=moves)


def handed_over(shard_map: ShardMap, buckets: Iterable[Bucket], target: Shard) -> ShardMap:
    """Return the map in which some buckets are owned by one of its shards, whatever the weights ask for.

    Raises
    ------
    BadInput
        There is no such bucket, or no such shard.

    Examples
    --------
    >>> handed_over(first_map(["id"], {Shard(0): 1, Shard(1): 1}, 8), [Bucket(3)], Shard(1)).owners
    (0, 0, 0, 1, 1, 1, 1, 1)
    """
    owners = list(shard_map.owners)
    if target not in shard_map.shards:
        raise BadInput(f"the table has the shards {', '.join(map(str, shard_map.shards))}, not {target}")
    for bucket in buckets:
        if not 0 <= bucket < shard_map.buckets:
            raise BadInput(f"the table has the buckets 0 to {shard_map.buckets - 1:,}, not {bucket}")
        owners[bucket] = target
    return msgspec.structs.replace(shard_map, owner=_runs(owners))


def turned_back(shard_map: ShardMap) -> ShardMap:
    """Return the map in which everything that moves has its old owner again, and what came meanwhile moves back."""
    owners, back = list(shard_map.owners), list[Move]()
    for move in shard_map.moves:
        back.append(Move(move.target, move.source, move.runs))
        for bucket in move.buckets:
            owners[bucket] = move.source
    ordered = tuple(sorted(back, key=lambda move: (move.source, move.target)))
    return msgspec.structs.replace(shard_map, owner=_runs(owners), moves=ordered)


def without_moves(shard_map: ShardMap) -> ShardMap:
    """Return the map after all its moves have ended."""
    return _same(shard_map, moves=())


def with_views(shard_map: ShardMap, views: int | UnsetType) -> ShardMap:
    """Return the map after a change of views: the new version of the node ``views``, or `UNSET` when none are left."""
    return _same(shard_map, views=views)


def without_shard(shard_map: ShardMap, shard: Shard, since: int) -> ShardMap:
    """Return the map after a shard has left it.

    Parameters
    ----------
    shard
        One that owns nothing, of a map without moves.
    since
        A transaction from which on it has had no rows.

    Examples
    --------
    >>> emptied = handed_over(first_map(["id"], {Shard(0): 1, Shard(1): 1}, 8), map(Bucket, range(4)), Shard(1))
    >>> left = without_shard(emptied, Shard(0), 17)
    >>> left.shards, left.removed, left.format
    ((1,), RemovedShards(since=17, next=2), 4)
    """
    assert not shard_map.moves
    assert shard not in shard_map.owners
    weights = tuple(each for each in shard_map.weights if each.shard != shard)
    if not any(each.weight for each in weights):
        # Buckets were moved one by one, and the weights ask for something else.
        weights = tuple(msgspec.structs.replace(each, weight=1) for each in weights)
    removed = RemovedShards(max(shard_map.since, since), shard_map.next_shard)
    return _same(shard_map, weights=weights, removed=removed)


def made_anew(shard_map: ShardMap) -> ShardMap:
    """Return the map of the same table when coordination has lost it: without views, and without cuts of the old ensemble."""
    removed = UNSET if shard_map.removed is UNSET else msgspec.structs.replace(shard_map.removed, since=0)
    return _same(shard_map, views=UNSET, removed=removed)


def _same(shard_map: ShardMap, **changes: Any) -> ShardMap:
    """Return a map with other fields, in the format that it has then."""
    own = {name: changes.get(name, getattr(shard_map, name)) for name in ("moves", "views", "removed")}
    return msgspec.structs.replace(shard_map, **changes, format=_format_of(*own.values()))


def _runs(owners: Iterable[Shard]) -> tuple[OwnerRun, ...]:
    return tuple(OwnerRun(shard, len(list(run))) for shard, run in groupby(owners))


def _balanced(key: Sequence[str], before: tuple[Shard, ...], weights: Mapping[Shard, int]) -> ShardMap:
    if set(map(type, weights.values())) != {int} or min(weights.values()) < 0 or not any(weights.values()):
        raise BadInput("weights of shards are whole numbers, none below 0 and one at least above")
    owned, buckets, total = Counter(before), len(before), sum(weights.values())
    # Whole numbers throughout: a quotient in floating point could turn the order of two remainders round.
    wanted = {shard: weight * buckets // total for shard, weight in weights.items()}
    remainders = {shard: weight * buckets % total for shard, weight in weights.items()}
    # Of shards with equal remainders those come first that own the bucket already: it would move otherwise.
    in_turn = sorted(weights, key=lambda shard: (-remainders[shard], owned[shard] <= wanted[shard], shard))
    for shard in in_turn[: buckets - sum(wanted.values())]:
        wanted[shard] += 1
    owners, given = list(before), list[int]()
    # A shard gives its last buckets: what moves lies together, so that the map keeps few runs.
    for bucket in reversed(range(buckets)):
        if owned[owners[bucket]] > wanted.get(owners[bucket], 0):
            owned[owners[bucket]] -= 1
            given.append(bucket)
    takers = [shard for shard in sorted(wanted) for _ in range(wanted[shard] - owned[shard])]
    for bucket, shard in zip(reversed(given), takers, strict=True):
        owners[bucket] = shard
    try:
        return ShardMap(
            buckets, tuple(key), _runs(owners), tuple(ShardWeight(shard, weights[shard]) for shard in sorted(weights))
        )
    except ValueError as error:
        raise BadInput(str(error)) from error
