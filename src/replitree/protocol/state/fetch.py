"""Fetch: find out which replica has a part, and copy it.

A part of an insert is fetched from its writer, and if that fails from any replica that has registered it.  If none has it any
more, because all have merged or mutated it by now, a later form of it is fetched instead: the part of the table that covers it.
That registers the result of an entry before the entry itself is executed, which the fold allows (`protocol.core.fold`).
"""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica
from replitree.protocol.core.parts import Part
from replitree.protocol.state.registration import content_of, is_broken


def fetch_anywhere(replica: Replica, part: Part) -> fx.Procedure[str | None]:
    """Fetch a part from a replica that has registered it; return its content hash, None if no replica could send it.

    The first publisher of a merge's or a mutation's result has recorded its content; other content is not taken.
    """
    others = yield from others_of(replica)
    paths = (layout.result(replica.table, part.name), *(layout.part(other, part.name) for other in others))
    many: fx.Many = yield fx.GetMany(paths)
    first, *registered = many.nodes
    values = tuple(None if node is None or is_broken(node.value) else node.value for node in registered)
    wanted = first.value if first is not None else next((value for value in values if value is not None), None)
    sources = tuple(
        other.name for other, value in zip(others, values, strict=True) if value is not None and value == wanted
    )
    if wanted is None or not sources:
        return None
    fetch = fx.FetchPart(part.name, content_of(wanted), sources)
    (outcome,) = yield fx.FetchMany((fetch,))
    return fetch.content_hash if isinstance(outcome, fx.Fetched) else None


def sources_of(replica: Replica, fetches: tuple[fx.FetchPart, ...]) -> fx.Procedure[dict[str, fx.FetchPart]]:
    """Find the other replicas that have registered the parts, beyond the sources that are known."""
    others = yield from others_of(replica)
    asked = tuple((fetch, other) for fetch in fetches for other in others if other.name not in fetch.sources)
    many = (yield fx.GetMany(tuple(layout.part(other, fetch.part) for fetch, other in asked))) if asked else fx.Many(())
    sources: dict[str, tuple[str, ...]] = {}
    for (fetch, other), node in zip(asked, many.nodes, strict=True):
        if node is not None and node.value == fetch.content_hash.encode():
            sources[fetch.part] = (*sources.get(fetch.part, ()), other.name)
    return {
        fetch.part: fx.FetchPart(fetch.part, fetch.content_hash, sources[fetch.part])
        for fetch in fetches
        if fetch.part in sources
    }


def others_of(replica: Replica) -> fx.Procedure[tuple[Replica, ...]]:
    """Return the table's other replicas, by name."""
    names = (yield fx.Children(layout.replicas(replica.table))) or ()
    return tuple(Replica(replica.table, name) for name in names if name != replica.name)


def refetch(replica: Replica, parts: tuple[tuple[str, str], ...]) -> fx.Procedure[tuple[str, ...]]:
    """Fetch registered parts again that are missing or broken on disk.

    The caller shows those again that it still has: meanwhile a drop may have removed them, or something else taken their place.

    Parameters
    ----------
    parts
        Name and content hash of each.

    Returns
    -------
    The names that no replica could send.
    """
    wanted = yield from sources_of(replica, tuple(fx.FetchPart(name, content_hash, ()) for name, content_hash in parts))
    outcomes = (yield fx.FetchMany(tuple(wanted.values()))) if wanted else ()
    here = tuple(outcome.part for outcome in outcomes if isinstance(outcome, fx.Fetched))
    return tuple(name for name, _ in parts if name not in here)
