"""The search of a model of moves, and what must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from msgspec import UNSET

from replitree.protocol.core.entries import GetEntry, SettleEntry
from replitree.protocol.core.stamps import Zxid
from replitree.protocol.sharded.moves.progress import decode_progress, moves
from replitree.protocol.sharded.moves.reading import is_map_at
from replitree.protocol.sharded.shard_map import Bucket, ShardMap, decode_map
from replitree_verify.engine.shared_tree import log_of
from replitree_verify.engine.small_search import Rules, Searched, search_all
from replitree_verify.moves.feed import fed_in, wrong_feed
from replitree_verify.moves.logs import PLACE, SHARDS, bucket_of, due_in, held_in, is_laid, opened_in, shown_in
from replitree_verify.moves.model import Model
from replitree_verify.moves.space import MovesState, Seen, Space
from replitree_verify.moves.stages import MAP_PATH
from replitree_verify.patches.patch import Patch


def search(model: Model, mutant: Patch | None = None) -> Searched:
    """Search a model; all else as of `search_all`."""
    space = Space(model)
    # It has what another mutant, or none, has made of a log.
    fed_in.cache_clear()

    def always(state: MovesState) -> Iterator[str]:
        yield from wrong(model, state)

    found = search_all(space, Rules(always=always, at_rest=wrong_at_rest), mutant)
    return replace(found, probes=frozenset(space.probes))


def wrong(model: Model, state: MovesState) -> Iterator[str]:
    """Give what does not hold in a state."""
    tree, shard_map = state.tree, _map_of(state.maps[-1])
    shown = tuple(shown_in(tree, shard) for shard in range(len(SHARDS)))
    due, seen = Counter(due_in(tree)), Counter(row for rows in shown for row in rows)
    if due != seen:
        yield f"D1: {sorted((due - seen).elements())} is not shown, and {sorted((seen - due).elements())} is too much"
    yield from wrong_feed(tree, seen)
    yield from _misplaced(state, shard_map)
    yield from _on_its_way(state)
    for shard in SHARDS:
        log = log_of(tree, shard)
        laid = {entry.insert for _, entry in log if isinstance(entry, GetEntry) and is_laid(entry)}
        for _, entry in log:
            if isinstance(entry, SettleEntry) and entry.insert in laid and len(entry.holders) < model.quorum:
                yield f"COPIES: {entry.insert} is shown, and only {entry.holders} have it"
    if state.has_left:
        yield "ENDS: a mover has ended, and the moves have not"
    yield from _left_out(state, shown)


def wrong_at_rest(state: MovesState) -> Iterator[str]:
    """Give what does not hold where nothing is left to do."""
    # A mover waits for an insert that no replica settles or gives up.
    is_waiting = any(not is_laid(entry) for shard in range(len(SHARDS)) for _, entry in opened_in(state.tree, shard))
    if state.tree.exists(moves(PLACE)) and not is_waiting and len(state.has_crashed) < len(state.movers):
        yield "ENDS: the moves have not ended"


def _misplaced(state: MovesState, shard_map: ShardMap) -> Iterator[str]:
    """Give the rows that lie where they do not belong."""
    owners = shard_map.owners
    for shard in range(len(SHARDS)):
        laid = {index for index, entry in opened_in(state.tree, shard) if is_laid(entry)}
        for held in held_in(state.tree, shard):
            for row in () if held.at in laid else held.rows:
                sources = {move.source for move in shard_map.moves if bucket_of(row) in move.buckets}
                if shard not in (owners[bucket_of(row)], *sources):
                    yield f"D6: {row} lies in shard {shard}"


def _on_its_way(state: MovesState) -> Iterator[str]:
    """Give what is wrong with the batch that is on its way."""
    node = state.tree.get(moves(PLACE))
    batch = None if node is None else decode_progress(node.value, "").batch
    named = set() if batch is None or batch is UNSET else {batch.insert}
    opened = {
        entry.insert for shard in range(len(SHARDS)) for _, entry in opened_in(state.tree, shard) if is_laid(entry)
    }
    if named != opened:
        yield f"BATCH: {sorted(opened)} is on its way, and the moves name {sorted(named)}"


def _left_out(state: MovesState, shown: tuple[tuple[str, ...], ...]) -> Iterator[str]:
    """Give the rows that a read of one bucket leaves out, with any map, at any cut beside a change of the map, and now."""
    # The map of number n was written at 2n + 1, so 2n is just before it.
    cuts = [(2 * number, each.before) for number, each in enumerate(state.maps) if number]
    cuts.append((2 * len(state.maps), shown))
    now = _map_of(state.maps[-1])
    for zxid, rows in cuts:
        # A read of all rows, or one that finds a newer map than that of its cut, asks all shards of the map.
        left = [row for at, its in enumerate(rows) if at not in now.shards for row in its]
        if left and zxid >= now.since:
            yield f"D7: a read of all shards at {zxid} leaves out {left}"
    for number, used in enumerate(state.maps):
        for later, found in enumerate(state.maps[number:], number):
            changed = Zxid(2 * later + 1)
            for zxid, rows in cuts:
                # The session that reads the map the second time has seen the cut; it may have seen more.
                is_seen = later == len(state.maps) - 1 or 2 * later + 3 > zxid
                is_refused = zxid < _map_of(used).since
                if not is_seen or is_refused or not is_map_at(Zxid(zxid), used.version, found.version, changed):
                    continue
                for bucket in range(4):
                    asked = _map_of(used).shards_of([Bucket(bucket)])
                    missed = [
                        row for at, its in enumerate(rows) if at not in asked for row in its if bucket_of(row) == bucket
                    ]
                    if missed:
                        yield f"D7: a read at {zxid} by map {used.version} leaves out {missed}"


def _map_of(seen: Seen) -> ShardMap:
    return decode_map(seen.value, MAP_PATH)
