"""What coordination knows about one table, read for the doctor."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from replitree.client.transport.standing import LogState, read_log_state
from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.fold import maximal
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.part_set import PartSet
from replitree.protocol.core.parts import Part, parse_part
from replitree.protocol.rescue.restore import restored_from
from replitree.protocol.state.registration import is_broken


@dataclass(frozen=True, slots=True)
class Facts:
    """One table, as coordination has it.

    Attributes
    ----------
    dropping
        Its drop has begun.
    restoring
        From which replica's disk it is being restored; empty: it is not.
    log
        The log, and where each replica stands.
    leaders
        The candidates for leader, in order.
    blocks, results, quorums
        How many nodes there are.
    held
        What each replica has registered, covered parts left out.
    registered
        How many nodes that are.
    """

    dropping: bool
    log: LogState
    leaders: tuple[str, ...] = ()
    blocks: int = 0
    results: int = 0
    quorums: int = 0
    held: dict[str, PartSet] = field(default_factory=dict)
    registered: dict[str, int] = field(default_factory=dict)
    restoring: str = ""


def read_facts(table: TablePlace) -> fx.Procedure[Facts | None]:
    """Read what coordination knows about a table; None when it is gone."""
    dropping = yield fx.Exists(layout.dropped(table))
    restoring = yield fx.Get(layout.restoring(table))
    log = yield from read_log_state(table)
    if log is None:
        return None
    counts: list[int] = []
    for parent in (layout.blocks(table), layout.results(table), f"{table.path}/quorum/status"):
        names: tuple[str, ...] = (yield fx.Children(parent)) or ()
        counts.append(len(names))
    election = layout.leader_election(table)
    candidates: tuple[str, ...] = (yield fx.Children(election)) or ()
    # The candidate with the lowest number leads; the names before the numbers say nothing.
    ordered = sorted(candidates, key=lambda name: name.rpartition("-")[2])
    leading: fx.Many = (yield fx.GetMany(tuple(f"{election}/{name}" for name in ordered))) if ordered else fx.Many(())
    leaders = tuple(node.value.decode("utf-8", "replace") for node in leading.nodes if node is not None)
    held: dict[str, PartSet] = {}
    registered: dict[str, int] = {}
    for standing in log.replicas:
        parts: tuple[str, ...] = (yield fx.Children(layout.parts(Replica(table, standing.name)))) or ()
        registered[standing.name] = len(parts)
        # A registration that another one covers goes a moment later, and a set of parts has none that overlap.
        held[standing.name] = PartSet.of(maximal(map(parse_part, parts)))
    blocks, results, quorums = counts
    return Facts(dropping, log, leaders, blocks, results, quorums, held, registered, restored_from(restoring))


def read_broken(replica: Replica, parts: PartSet) -> fx.Procedure[tuple[str, ...]]:
    """Return which of the parts that a replica has registered it has noted as broken."""
    names = tuple(part.name for part in parts)
    many: fx.Many = (yield fx.GetMany(tuple(layout.part(replica, name) for name in names))) if names else fx.Many(())
    return tuple(
        name for name, node in zip(names, many.nodes, strict=True) if node is not None and is_broken(node.value)
    )


def fullest_partition(facts: Facts) -> tuple[str, int]:
    """Return the partition with the most parts on the replica that is furthest, and how many."""
    if not facts.held:
        return "", 0
    best = max(facts.log.replicas, key=lambda standing: (standing.pointer - standing.queue, standing.name)).name
    counts = Counter(part.partition for part in facts.held[best])
    return counts.most_common(1)[0] if counts else ("", 0)


def holders(facts: Facts, broken: dict[str, frozenset[str]], name: str, part: Part) -> tuple[str, ...]:
    """Return which other replicas have a part, or a later form of it, whole.

    Parameters
    ----------
    broken
        The parts that are broken, by replica.
    name
        The replica that waits.
    """
    found: list[str] = []
    for other, held in sorted(facts.held.items()):
        cover = held.covering(part) if other != name else None
        if cover is not None and cover.name not in broken.get(other, frozenset()):
            found.append(other)
    return tuple(found)
