"""Rare branches of inserts with a quorum, by name."""

from __future__ import annotations

from collections.abc import Iterator

from replitree.protocol.core import effects as fx

_ENDS = {b'{"kind":"settle"': "quorum reached", b'{"kind":"fail"': "quorum given up"}


def probes_of_quorums(stage: str, effect: fx.Commit, outcome: object) -> Iterator[str]:
    """Return the rare branches that a commit belongs to, as far as they have to do with a quorum.

    Parameters
    ----------
    stage
        The name of the stage that asked for it.
    """
    match outcome:
        case fx.Applied():
            # A replica that starts or reloads joins a quorum for a part that it had from before: it counts late.
            late = stage in ("tidy_up", "reload_state")
            for operation in effect.operations:
                if isinstance(operation, fx.Create) and operation.sequential:
                    yield from (name for begin, name in _ENDS.items() if operation.value.startswith(begin))
                    if late:
                        yield "counted late"
                elif isinstance(operation, fx.Set) and "/quorum/status/" in operation.path:
                    yield "counted late" if late else "counted"
        case fx.Refused(operation=fx.Delete(path=path) | fx.Set(path=path)) if "/quorum/status/" in path:
            yield "quorum moved meanwhile"
