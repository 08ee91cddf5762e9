"""Rare branches by name: what must have been seen, or a model that finds nothing has looked at nothing.

A probe is told by one turn of a conversation, and by what came before it in the same stage.  Explorer and simulator report the
same names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from replitree.protocol.core import effects as fx
from replitree.protocol.core.parts import parse_part
from replitree_verify.probes.longlife import probes_of_long_life
from replitree_verify.probes.quorum import probes_of_quorums
from replitree_verify.world.kernel import Conversation


class Seen(NamedTuple):
    """One turn, with its stage so far."""

    told: Conversation
    effect: Any
    outcome: Any
    fate: str
    disk_changed: bool

    @property
    def stage(self) -> str:
        """The name of the stage."""
        return self.told.stage.__name__

    def earlier(self, kind: type) -> list[Any]:
        """Return the outcomes of the stage's effects of a kind before this one."""
        return [outcome for effect, outcome in self.told.turns if isinstance(effect, kind)]


def probes_of_commit(seen: Seen) -> Iterator[str]:
    """Return the rare branches that a commit belongs to."""
    if isinstance(seen.outcome, fx.Unknown):
        yield f"unknown: {seen.fate}"
    yield from probes_of_long_life(seen.stage, seen.effect, seen.outcome)
    yield from probes_of_quorums(seen.stage, seen.effect, seen.outcome)
    fenced = isinstance(seen.outcome, fx.Refused) and isinstance(seen.outcome.operation, fx.Check)
    moved = isinstance(seen.outcome, fx.Refused | fx.Unknown) and not fenced
    if isinstance(seen.outcome, fx.Refused) and "/streams" in seen.outcome.operation.path:
        yield "stream moved meanwhile"
    if isinstance(seen.outcome, fx.Applied):
        yield from _of_applied(seen)
    elif isinstance(seen.outcome, fx.Refused) and "/results/" in seen.outcome.operation.path:
        yield "another published first"
    match seen.stage:
        case "forget_next" if any(isinstance(operation, fx.Delete) for operation in seen.effect.operations):
            yield "covered parts forgotten" if isinstance(seen.outcome, fx.Applied) else "forgetting refused"
        case "lead" if fenced:
            yield "proposal fenced"
        case "insert_group" if fenced:
            yield "insert fenced"
        case "give_command" | "propose_rewrite" if (
            isinstance(seen.outcome, fx.Refused) and "/blocks/" in seen.outcome.operation.path
        ):
            yield "command known already"
        case "pull_next" | "catch_up_with_log" if fenced or moved:
            yield "pull fenced" if fenced else "pointer moved"
        case "execute_next" | "make_next" if fenced or moved:
            yield "execution fenced" if fenced else "queue moved"
        case _ if isinstance(seen.outcome, fx.Refused) and (
            seen.outcome.operation.path.endswith(("/host", "/is_active"))
            and not isinstance(seen.outcome.operation, fx.Check)
        ):
            yield "activation refused"


def _of_applied(seen: Seen) -> Iterator[str]:
    paths = {type(each): each.path for each in seen.effect.operations}
    deleted = [each for each in seen.effect.operations if isinstance(each, fx.Delete)]
    if any(isinstance(each, fx.Set) and "/blocks/" in each.path for each in seen.effect.operations):
        yield "token free again"
    of_streams = [each for each in seen.effect.operations if "/streams/" in each.path]
    if any(isinstance(each, fx.Delete) for each in of_streams):
        yield "stream forgotten"
    if any(isinstance(each, fx.Set) for each in of_streams) and any("/quorum/status/" in each.path for each in deleted):
        yield "stream set back"
    if "/results/" in paths.get(fx.Create, "") and seen.stage == "kill":
        yield "mutation killed"
    parts = [each for each in seen.effect.operations if "/parts/" in each.path]
    added = [parse_part(each.path.rpartition("/")[2]) for each in parts if isinstance(each, fx.Create)]
    if seen.stage == "execute_next" and any(part.level or part.mutation for part in added):
        yield "later form taken"
    if seen.stage == "execute_next" and not added and parts:
        yield "parts dropped"
    if added and any("/drops/" in each.path for each in seen.effect.operations):
        yield "parts overwritten"


def probes_of_making(seen: Seen) -> Iterator[str]:
    """Return the rare branches that the making of a result belongs to."""
    match seen.outcome:
        case fx.Made():
            yield {fx.Merge: "merged", fx.Mutate: "mutated", fx.Link: "let be"}[type(seen.effect)]
        case fx.Cancelled():
            yield "making cancelled"


def probes_of_answer(seen: Seen) -> Iterator[str]:
    """Return the rare branches that the answer to a client belongs to."""
    if seen.stage == "await_quorum" and isinstance(seen.effect.answer, fx.NotInserted | fx.Duplicate):
        yield "failed for good" if isinstance(seen.effect.answer, fx.NotInserted) else "retry waited"
    commits = [
        outcome
        for effect, outcome in seen.told.turns
        if isinstance(effect, fx.Commit)
        and any(isinstance(each, fx.Create) and each.sequential for each in effect.operations)
    ]
    doubted = any(isinstance(outcome, fx.Unknown) for outcome in commits)
    match seen.effect.answer:
        case fx.Inserted() if doubted:
            yield (
                "doubt settled: in the log" if isinstance(commits[-1], fx.Unknown) else "doubt settled: committed again"
            )
        case fx.Duplicate() if seen.stage in ("give_command", "propose_rewrite"):
            yield "command of long ago"
        case fx.Duplicate():
            yield "duplicate within a group" if len(seen.told.arguments[-1]) > 1 else "duplicate"
            if doubted:
                yield "doubt settled: another had the token"
        case fx.Inserted() if seen.stage == "judge_rewrite":
            yield "rewritten"
        case fx.NotInserted(why=fx.Why.CHANGED):
            yield "rewrite refused"
        case fx.NotInserted(why=fx.Why.STREAM):
            yield "stream of another query"
        case fx.NotInserted(reason) if "is open still" in reason:
            yield "batch after an open one"
        case fx.NotInserted(reason) if "took over" in reason:
            yield "insert of a replaced process failed"
        case fx.MaybeInserted():
            yield "insert in doubt"


def probes_of_fetch(seen: Seen) -> Iterator[str]:
    """Return the rare branches that a fetch belongs to."""
    if seen.outcome is None:
        return
    if all(isinstance(outcome, fx.Fetched) for outcome in seen.outcome):
        made = seen.stage == "make_next"
        yield "result fetched" if made else "fetched elsewhere" if seen.earlier(fx.FetchMany) else "fetched"
    else:
        yield "fetch failed"


def probes_of_stage(seen: Seen) -> Iterator[str]:
    """Return the rare branch of a group of requests that can't be staged together."""
    # A group that could not be staged as a whole is staged request by request: told by a larger one that failed before.
    failed = [effect for effect, outcome in seen.told.turns if isinstance(outcome, fx.StoreFailed)]
    if any(isinstance(each, fx.Stage) and len(each.requests) > len(seen.effect.requests) for each in failed):
        yield "group split"


def probes_of_publishing(seen: Seen) -> Iterator[str]:
    """Return those of staged parts that get their names."""
    if seen.stage == "insert_group" and isinstance(seen.outcome, fx.Published) and seen.outcome.missing:
        yield "insert overtaken"
    if seen.stage == "execute_next" and seen.disk_changed:
        yield "own part published by execute"
