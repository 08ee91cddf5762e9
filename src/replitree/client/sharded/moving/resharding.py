"""Change which shard owns which buckets: new shards, other weights, single buckets; and what becomes of such moves.

Each function here begins moves, turns them back, or tells of them.  `replitree.client.sharded.moving.moves` carries them on.
From the moment at which they begin, inserts go to the new owners; rows follow batch by batch.

One change at a time: moves begin only when there are none.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replitree.client.admin.moving import moving_table
from replitree.client.sharded.sharded_catalog import ShardedInfo, sharded
from replitree.errors import BadInput, CoordinationUnavailable, TableNotFound, Unavailable
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.log import encode_log
from replitree.protocol.membership.table import table_nodes
from replitree.protocol.sharded import places
from replitree.protocol.sharded.moves.carry import turn_moves_back
from replitree.protocol.sharded.moves.course import MovesFound, Turned, begin, find_moves
from replitree.protocol.sharded.moves.progress import RefusedBatches
from replitree.protocol.sharded.placement import decode_placement, encode_placement
from replitree.protocol.sharded.shard_map import (
    SHARDS_MAX,
    Bucket,
    Move,
    Shard,
    ShardMap,
    handed_over,
    moving,
    rebalanced,
)
from replitree.protocol.shares.table_store import sharing_nodes
from replitree.protocol.upkeep.cut_consumers import hold_in_new_shard
from replitree.protocol.upkeep.shard_removal import NoSuchTable, ShardNeeded, ShardRemoved, remove_shard
from replitree.storage.schema.definition import decode_definition
from replitree.storage.schema.merge_policy import PolicyKind
from replitree.storage.schema.shard_definition import shard_definition

if TYPE_CHECKING:
    from replitree.client.transport.catalog import Catalog

ATTEMPTS_MAX = 20
"""How often a change is tried again because another client has changed the table meanwhile."""

VERSIONS_MAX = 200
"""Changes of the columns that a table may have had when it gets a shard: the new shard's node takes as many versions."""

RUNS_MAX = 1_000
"""Runs of neighbouring buckets in one move: the condition that finds their rows is about 100 KB then."""

LOOK_S = 0.05
"""Pause between two looks while replicas join a shard, in seconds."""


@dataclass(frozen=True, slots=True)
class MovesStatus:
    """What moves in a sharded table.

    Attributes
    ----------
    moves
        The moves; none: nothing moves.
    batches, rows, bytes
        What has arrived since they began.
    on_its_way
        Rows that lie at their target, and are shown at their source still.
    weights, owned
        The weight of each shard, and how many buckets it owns.
    idle_s
        Seconds since the last progress, by coordination's clock.
    refused
        The batches that were refused since the last one that arrived, because their rows differed; None: none.
    left
        Shards that were removed, and whose own tables are still there: remove them again.
    """

    moves: tuple[Move, ...]
    batches: int
    rows: int
    bytes: int
    on_its_way: int
    weights: Mapping[Shard, int]
    owned: Mapping[Shard, int]
    idle_s: float = 0.0
    refused: RefusedBatches | None = None
    left: tuple[Shard, ...] = ()


def status_of(catalog: Catalog, name: str) -> MovesStatus:
    """Return what moves in a sharded table.

    Raises
    ------
    TableNotFound
        There is none of this name.
    """
    found = _found(catalog, name)
    far, owned = moving_table(catalog, name, found), Counter(found.map.owners)
    tables = (each for each in catalog.all_names() if places.is_shard_name(each) and places.sharded_name(each) == name)
    numbers = map(places.shard_number, tables)
    return MovesStatus(
        found.map.moves,
        far.batches,
        far.rows,
        far.bytes,
        far.rows_on_their_way,
        {each.shard: each.weight for each in found.map.weights},
        {shard: owned[shard] for shard in found.map.shards},
        far.idle_s,
        RefusedBatches(far.refused, far.reason) if far.refused else None,
        # The addition of a shard with a higher number was cut off.
        tuple(sorted(each for each in numbers if each not in found.map.shards and each < found.map.next_shard)),
    )


def plan_weights(catalog: Catalog, name: str, weights: Mapping[int, int]) -> ShardMap:
    """Return the map, with its moves, that a table would have with other weights; nothing is changed.

    Parameters
    ----------
    weights
        Of the shards whose weight changes; of the others it stays.

    Raises
    ------
    TableNotFound
        There is no such table.
    BadInput
        It has no such shard, or no map can have these weights.
    """
    return _weighted(_found(catalog, name).map, weights)


def begin_weights(catalog: Catalog, name: str, weights: Mapping[int, int]) -> ShardMap:
    """Let buckets move until each shard owns as many as its weight asks for; return the map.

    Parameters and errors as of `plan_weights`; also:

    Raises
    ------
    BadInput
        Buckets move already, or the policy of the table depends on the order of its inserts.
    CoordinationUnavailable
        It is not known whether the moves have begun; ask for the status.
    """
    return _begin(catalog, name, lambda shard_map: _weighted(shard_map, weights))


def begin_buckets(catalog: Catalog, name: str, buckets: Iterable[int], target: int) -> ShardMap:
    """Let single buckets move to a shard, whatever the weights ask for; return the map.

    Raises
    ------
    BadInput
        There is no such bucket or shard; or as of `begin_weights`, as other errors.
    """
    chosen = [Bucket(each) for each in buckets]

    def wanted(shard_map: ShardMap) -> ShardMap:
        return moving(shard_map, handed_over(shard_map, chosen, Shard(target)))

    return _begin(catalog, name, wanted)


def turn_back(catalog: Catalog, name: str) -> None:
    """Let moves turn back: buckets get their old owners, and what came to the new ones moves back.

    Raises
    ------
    BadInput
        Nothing moves.
    CoordinationUnavailable
        It is not known whether they have turned back; ask for the status.
    """
    outcome = catalog.run(turn_moves_back(layout.sharded(catalog.root, name)))
    if outcome is Turned.REFUSED:
        raise BadInput(
            f"nothing moves in table {name!r}, or its moves change all the time: see `replitree shard status {name}`"
        )
    if outcome is Turned.UNSETTLED:
        raise CoordinationUnavailable(
            f"whether the moves of {name!r} have turned back is not known; ask for their status"
        )


def add_shard(
    catalog: Catalog, name: str, *, replicas: Sequence[str] = (), weight: int = 1, timeout_s: float = 60.0
) -> tuple[Shard, ShardMap]:
    """Add a shard to a table, and let buckets move there; return its number, and the map.

    Parameters
    ----------
    replicas
        Names of the replicas that host it; none: all.
    weight
        Its weight, beside those of the other shards.
    timeout_s
        How long replicas may take to join it, in seconds.

    Raises
    ------
    Unavailable
        None has joined in time: nothing moves yet; add a shard again, and this one is used.
    BadInput, CoordinationUnavailable
        As of `begin_weights`.
    """
    deadline = time.monotonic() + timeout_s
    for _ in range(ATTEMPTS_MAX):
        info = sharded(catalog, name)
        _check_may_move(info)
        shard, unchanged = _create_shard(catalog, info, replicas)
        if shard is None:
            continue
        table = places.shard_name(name, shard)
        while not any(each.active for each in catalog.replicas(table)):
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"no replica has joined {table} in {timeout_s:.0f} s: start the servers that are to host it, and repeat"
                )
            time.sleep(LOOK_S)
        found = _found(catalog, name)
        weights = {each.shard: each.weight for each in found.map.weights} | {shard: weight}
        wanted = moving(found.map, rebalanced(found.map, weights))
        if not wanted.moves:
            raise BadInput(
                f"with the weight {weight} shard {shard} of {name!r} would get no bucket: give it a higher one"
            )
        if found.map_version != info.map_version:
            continue
        holds = catalog.run(hold_in_new_shard(catalog.root, name, table))
        if len(holds) > 1 and not info.definition.feed:
            # Replicas of the new shard would not note the transactions of its first entries.
            raise BadInput(
                f"{name!r} has consumers of its change feed, which is off: turn it on (replitree table feed), or drop them"
            )
        outcome = catalog.run(begin(found, wanted, (*unchanged, *holds)))
        if outcome is Turned.DONE:
            return shard, wanted
        if outcome is Turned.UNSETTLED:
            break
    raise CoordinationUnavailable(f"whether {name!r} has a new shard is not known; ask for the status of its shards")


def take_out_shard(catalog: Catalog, name: str, shard: int, *, timeout_s: float = 60.0) -> None:
    """Remove a shard that owns nothing, and its own table; also one whose removal was cut off.

    Parameters
    ----------
    timeout_s
        How long its replicas may take to leave, in seconds.

    Raises
    ------
    TableNotFound
        There is no such table.
    BadInput
        Something needs the shard, or it has never been one of the table; nothing was changed.
    CoordinationUnavailable
        It is not known whether the shard was removed; repeat it.
    Unavailable
        The shard was removed, and replicas have not left it in time; repeat it.
    """
    deadline = time.monotonic() + timeout_s
    if _found(catalog, name).map.next_shard <= shard:
        raise BadInput(f"table {name!r} has no shard {shard}: see `replitree shard status {name}`")
    outcome = catalog.run(remove_shard(catalog.root, name, Shard(shard)))
    match outcome:
        case ShardRemoved(table):
            catalog.finish_drop(table, deadline, f"replitree shard remove {name} --shard {shard}")
        case ShardNeeded(reason):
            raise BadInput(f"shard {shard} stays: {reason}")
        case NoSuchTable():
            raise TableNotFound(f"table {name!r} was dropped meanwhile")
        case fx.InDoubt():
            raise CoordinationUnavailable(f"whether shard {shard} of {name!r} was removed is not known; repeat it")


def _create_shard(
    catalog: Catalog, info: ShardedInfo, replicas: Sequence[str]
) -> tuple[Shard | None, tuple[fx.Operation, ...]]:
    """Create the table of a new shard; return its number, and what proves that the others are as it is.  None: try again."""
    name, place = info.definition.name, layout.sharded(catalog.root, info.definition.name)
    own = (places.metadata(place), places.columns(place), places.placement(place))
    metadata, columns, placement = catalog.perform(fx.GetMany(own)).nodes
    if metadata is None or columns is None or placement is None:
        raise TableNotFound(f"table {name!r} does not exist any more")
    if columns.version > VERSIONS_MAX:
        raise BadInput(f"the columns of {name!r} were changed {columns.version} times: it can't get another shard")
    definition = decode_definition(metadata.value, columns.value)
    for number in range(info.map.next_shard, info.map.next_shard + SHARDS_MAX):
        shard = Shard(number)
        its, table = (
            shard_definition(definition, shard),
            places.shard_place(catalog.root, name, shard, info.incarnation),
        )
        values = its.encode_metadata(), its.encode_columns()
        path = layout.columns(table)
        there = catalog.perform(fx.GetMany((layout.metadata(table), path))).nodes
        unchanged = (
            fx.Check(own[0], metadata.version),
            fx.Check(own[1], columns.version),
            fx.Check(path, columns.version),
        )
        if there[0] is not None and there[1] is not None:
            # Of an addition that was cut off: it is used if the table is still what it was then.
            is_same = (there[0].value, there[1].value, there[1].version) == (*values, columns.version)
            if is_same:
                return shard, unchanged
            continue
        made = catalog.perform(
            fx.Commit(
                *unchanged[:2],
                fx.Check(places.life(place, info.incarnation), fx.ANY_VERSION),
                fx.Check(layout.shard_map(place), info.map_version),
                *table_nodes(table, *values, encode_log(table)),
                *(sharing_nodes(table) if its.is_shared else ()),
                # A shard's columns have one version for each change, as those of the shards beside it.
                *(fx.Set(path, values[1], fx.Version(version)) for version in range(columns.version)),
                fx.Set(
                    own[2],
                    encode_placement(decode_placement(placement.value, own[2]).placed(shard, replicas)),
                    placement.version,
                ),
            )
        )
        return (shard, unchanged) if isinstance(made, fx.Applied) else (None, ())
    raise BadInput(f"table {name!r} has no number left for a shard")


def _begin(catalog: Catalog, name: str, wanted_of: Callable[[ShardMap], ShardMap]) -> ShardMap:
    """Begin the moves that lead to the map which is wanted, if there are any."""
    for _ in range(ATTEMPTS_MAX):
        _check_may_move(sharded(catalog, name))
        found = _found(catalog, name)
        wanted = wanted_of(found.map)
        if any(len(each.runs) > RUNS_MAX for each in wanted.moves):
            raise BadInput(f"buckets in more than {RUNS_MAX:,} places can't move at once: move fewer")
        if not wanted.moves:
            # Weights that ask for nothing else are noted all the same.
            if wanted == found.map:
                return wanted
            outcome = _turned(catalog, found, wanted)
        else:
            outcome = catalog.run(begin(found, wanted))
        if outcome is Turned.DONE:
            return wanted
        if outcome is Turned.UNSETTLED:
            break
    raise CoordinationUnavailable(
        f"whether buckets of {name!r} move now is not known; ask for the status of its shards"
    )


def _turned(catalog: Catalog, found: MovesFound, wanted: ShardMap) -> Turned:
    committed: fx.Committed = catalog.perform(fx.Commit(found.turned(wanted)))
    if isinstance(committed, fx.Applied):
        return Turned.DONE
    return Turned.UNSETTLED if isinstance(committed, fx.Unknown) else Turned.REFUSED


def _check_may_move(info: ShardedInfo) -> None:
    """Refuse moves of a table in which buckets move already, or whose policy moves would break.

    Raises
    ------
    BadInput
        It is one; says why.
    """
    name, policy = info.definition.name, info.definition.policy
    if info.map.moves:
        raise BadInput(f"buckets of {name!r} move already: wait, or turn them back (replitree shard status {name})")
    if policy.kind is PolicyKind.REPLACING and policy.version is None:
        raise BadInput(
            f"table {name!r} replaces rows by those that were inserted last, and a move brings old rows after new ones:"
            " of the replacing tables only those with a version can be resharded"
        )


def _found(catalog: Catalog, name: str) -> MovesFound:
    found = catalog.run(find_moves(layout.sharded(catalog.root, name)))
    if found is None:
        raise TableNotFound(
            f"table {name!r} does not exist, or is not sharded; see `replitree table list` for those that do"
        )
    return found


def _weighted(shard_map: ShardMap, weights: Mapping[int, int]) -> ShardMap:
    known = {each.shard: each.weight for each in shard_map.weights}
    unknown = sorted(set(weights) - set(known))
    if unknown:
        raise BadInput(f"the table has the shards {', '.join(map(str, known))}, not {unknown[0]}")
    if shard_map.moves:
        raise BadInput("buckets of this table move already: wait, or turn them back")
    return moving(shard_map, rebalanced(shard_map, known | {Shard(shard): weight for shard, weight in weights.items()}))
