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

To add a shard is to give it a weight, to remove one is to leave its weight out.  A shard of weight 0 stays in the map and is to
own nothing: it is being emptied, or is not in use yet.

Absent on purpose: rows and their hash, the tables of the shards, and moves in progress, which get a format of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Literal, NewType

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import BadInput
from replitree.protocol.core.values import decode_value

MAP_FORMAT = 1

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
        Buckets that move from shard to shard.  This format has none: a replica that does not know moves must not misread them.
    """

    buckets: int
    key: tuple[str, ...]
    owner: tuple[OwnerRun, ...]
    weights: tuple[ShardWeight, ...]
    hash: Literal["xxh64-42"] = "xxh64-42"
    moves: tuple[()] = ()
    format: int = MAP_FORMAT

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
        )
        for holds, problem in rules:
            # A ValueError, of which msgspec makes an error of its own where the map comes from bytes.
            if not holds:
                raise ValueError(problem)

    @property
    def shards(self) -> tuple[Shard, ...]:
        """Every shard of the table, also one that owns no bucket, ascending."""
        return tuple(each.shard for each in self.weights)

    @property
    def owners(self) -> tuple[Shard, ...]:
        """The owner of each bucket, from bucket 0 on."""
        return tuple(run.shard for run in self.owner for _ in range(run.buckets))

    def owners_of(self, buckets: Iterable[Bucket]) -> tuple[Shard, ...]:
        """Return the shards that own these buckets, ascending, each once."""
        owners = self.owners
        return tuple(sorted({owners[bucket] for bucket in buckets}))


_decode = json_decoder(ShardMap).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


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
        Of each shard from now on.  A shard that the map has and that is not here loses all of its buckets, and leaves the map;
        one that the map does not have is added.

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
    return _balanced(shard_map.key, shard_map.owners, weights)


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
    runs = tuple(OwnerRun(shard, len(list(run))) for shard, run in groupby(owners))
    try:
        return ShardMap(
            buckets, tuple(key), runs, tuple(ShardWeight(shard, weights[shard]) for shard in sorted(weights))
        )
    except ValueError as error:
        raise BadInput(str(error)) from error
