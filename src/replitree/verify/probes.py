"""Rare branches by name: what must have been seen, or a model that finds nothing has looked at nothing.

A probe is told by one turn of a conversation, and by what came before it in the same stage.  Explorer and simulator report the
same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from replitree.protocol import layout
from replitree.protocol.effects import (
    Answer,
    Applied,
    Cancelled,
    Check,
    Commit,
    Create,
    CurrentEpoch,
    CurrentSession,
    Detach,
    Duplicate,
    Failed,
    Fetched,
    FetchMany,
    FindPart,
    Get,
    Inserted,
    Link,
    ListParts,
    Made,
    MakeEmpty,
    Merge,
    Mutate,
    Operation,
    OutcomeUnknown,
    Owner,
    ProbeOwner,
    Publish,
    Refused,
    RemovePart,
    RemoveStaging,
    Set,
    StoreFailed,
    Unknown,
)
from replitree.protocol.parts import parse_part
from replitree.verify.kernel import Conversation
from replitree.verify.life import AwaitReplica, GiveBack, Stop, TakeOver
from replitree.verify.longlife import AwaitSource, Missed
from replitree.verify.model import TABLE
from replitree.verify.probes_long import probes_of_long_life
from replitree.verify.probes_quorum import probes_of_answers, probes_of_quorums
from replitree.verify.reading import Shown, ShowRows
from replitree.verify.standing import Elected


@dataclass(frozen=True, slots=True)
class Seen:
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

    def log_commits(self) -> list[Any]:
        """Return the outcomes of the stage's commits that append to the log."""
        return [outcome for effect, outcome in self.told.turns if isinstance(effect, Commit) and _appends(effect)]


def probes_of(seen: Seen) -> Iterator[str]:
    """Return the names of the rare branches that a turn belongs to."""
    if seen.fate in ("stale", "torn"):
        yield f"{seen.fate} read"
    if isinstance(seen.outcome, StoreFailed):
        yield "disk failed"
    found = _PROBES.get(type(seen.effect))
    if found is not None:
        yield from found(seen)


def _appends(commit: Commit) -> bool:
    return any(isinstance(operation, Create) and operation.sequential for operation in commit.operations)


def _of_commit(seen: Seen) -> Iterator[str]:
    if isinstance(seen.outcome, Unknown):
        yield f"unknown: {seen.fate}"
    yield from probes_of_long_life(seen.stage, seen.effect, seen.outcome)
    yield from probes_of_quorums(seen.stage, seen.effect, seen.outcome)
    fenced = isinstance(seen.outcome, Refused) and isinstance(seen.outcome.operation, Check)
    moved = isinstance(seen.outcome, Refused | Unknown) and not fenced
    if isinstance(seen.outcome, Applied):
        yield from _of_applied(seen)
    elif isinstance(seen.outcome, Refused) and "/results/" in seen.outcome.operation.path:
        yield "another published first"
    match seen.stage:
        case "forget_next":
            yield "covered parts forgotten" if isinstance(seen.outcome, Applied) else "forgetting refused"
        case "lead" if fenced:
            yield "proposal fenced"
        case "insert_group" if fenced:
            yield "insert fenced"
        case "give_command" if isinstance(seen.outcome, Refused) and "/blocks/" in seen.outcome.operation.path:
            yield "command known already"
        case "pull_next" | "catch_up_with_log" if fenced or moved:
            yield "pull fenced" if fenced else "pointer moved"
        case "execute_next" | "make_next" if fenced or moved:
            yield "execution fenced" if fenced else "queue moved"
        case _ if isinstance(seen.outcome, Refused) and _is_activation(seen.outcome.operation):
            yield "activation refused"


def _of_applied(seen: Seen) -> Iterator[str]:
    paths = {type(each): each.path for each in seen.effect.operations}
    if any(isinstance(each, Set) and "/blocks/" in each.path for each in seen.effect.operations):
        yield "token free again"
    if "/results/" in paths.get(Create, "") and seen.stage == "kill":
        yield "mutation killed"
    parts = [each for each in seen.effect.operations if "/parts/" in each.path]
    added = [parse_part(each.path.rpartition("/")[2]) for each in parts if isinstance(each, Create)]
    if seen.stage == "execute_next" and any(part.level or part.mutation for part in added):
        yield "later form taken"
    if seen.stage == "execute_next" and not added and parts:
        yield "parts dropped"
    if added and any("/drops/" in each.path for each in seen.effect.operations):
        yield "parts overwritten"


def _of_read(seen: Seen) -> Iterator[str]:
    if isinstance(seen.outcome, Shown):
        yield f"{seen.effect.level} read"
    else:
        yield "read expired"


def _of_session(seen: Seen) -> Iterator[str]:
    before = [outcome for effect, outcome in seen.told.turns if isinstance(effect, CurrentSession)]
    if before and before[0] != seen.outcome:
        yield "session changed under a read"


def _of_make(seen: Seen) -> Iterator[str]:
    match seen.outcome:
        case Made():
            yield {Merge: "merged", Mutate: "mutated", Link: "let be"}[type(seen.effect)]
        case Cancelled():
            yield "making cancelled"


def _of_give_back(seen: Seen) -> Iterator[str]:
    if seen.effect.postponed and not any(isinstance(effect, Commit) for effect, _ in seen.told.turns):
        yield "made later" if seen.stage == "make_next" else "executed later"


def _of_take_over(seen: Seen) -> Iterator[str]:
    if seen.outcome is False:
        yield "loaded too early"
    elif seen.stage == "reload_state":
        yield "state loaded again"


def _is_activation(operation: Operation) -> bool:
    return operation.path.endswith(("/host", "/is_active")) and not isinstance(operation, Check)


def _of_answer(seen: Seen) -> Iterator[str]:
    yield from probes_of_answers(seen.stage, seen.effect)
    commits = seen.log_commits()
    doubted = any(isinstance(outcome, Unknown) for outcome in commits)
    match seen.effect.answer:
        case Inserted() if doubted:
            yield "doubt settled: in the log" if isinstance(commits[-1], Unknown) else "doubt settled: committed again"
        case Duplicate() if seen.stage == "give_command":
            yield "command of long ago"
        case Duplicate():
            yield "duplicate within a group" if len(seen.told.arguments[-1]) > 1 else "duplicate"
            if doubted:
                yield "doubt settled: another had the token"
        case Failed(reason) if "took over" in reason:
            yield "insert of a replaced process failed"
        case OutcomeUnknown():
            yield "insert in doubt"


def _of_fetch(seen: Seen) -> Iterator[str]:
    tried = any(isinstance(effect, FetchMany) for effect, _ in seen.told.turns)
    if seen.outcome is None:
        return
    if all(isinstance(outcome, Fetched) for outcome in seen.outcome):
        made = seen.stage == "make_next"
        yield "result fetched" if made else "fetched elsewhere" if tried else "fetched"
    else:
        yield "fetch failed"


def _of_publish(seen: Seen) -> Iterator[str]:
    if seen.stage == "execute_next" and seen.disk_changed:
        yield "own part published by execute"


def _of_elected(seen: Seen) -> Iterator[str]:
    commits = [outcome for effect, outcome in seen.told.turns if isinstance(effect, Commit)]
    if seen.effect.leads:
        yield "leads" if commits else "found itself leading"
    elif seen.told.arguments[1] is not None:
        yield "deposed"


def _of_find(seen: Seen) -> Iterator[str]:
    if seen.outcome is not None:
        yield "result found"


def _of_list_parts(seen: Seen) -> Iterator[str]:
    swept = sum(isinstance(effect, RemoveStaging) for effect, _ in seen.told.turns)
    if seen.stage == "tidy_up" and len(seen.told.arguments[-1]) > swept:
        yield "committed staging kept"


def _of_detach(seen: Seen) -> Iterator[str]:
    if seen.outcome is None and seen.disk_changed:
        yield "parts kept aside"


def _of_remove_part(seen: Seen) -> Iterator[str]:
    yield "other content thrown away" if seen.stage == "make_next" else "unknown part set aside"


def _of_get(seen: Seen) -> Iterator[str]:
    if seen.effect.path.startswith(f"{layout.log(TABLE)}/"):
        yield "gap looked at again"


def _of_epoch(seen: Seen) -> Iterator[str]:
    if seen.stage == "become_active" and seen.outcome is not None:
        yield "activated again"


def _of_probe(seen: Seen) -> Iterator[str]:
    if seen.outcome is Owner.DEAD:
        yield "dead owner replaced"


def _named(name: str) -> Callable[[Seen], Iterator[str]]:
    def named(seen: Seen) -> Iterator[str]:
        del seen
        yield name

    return named


_PROBES: dict[type, Callable[[Seen], Iterator[str]]] = {
    Commit: _of_commit,
    Answer: _of_answer,
    FetchMany: _of_fetch,
    Publish: _of_publish,
    GiveBack: _of_give_back,
    TakeOver: _of_take_over,
    Merge: _of_make,
    Mutate: _of_make,
    Link: _of_make,
    MakeEmpty: _named("made empty"),
    ListParts: _of_list_parts,
    ShowRows: _of_read,
    CurrentSession: _of_session,
    FindPart: _of_find,
    Elected: _of_elected,
    Detach: _of_detach,
    Get: _of_get,
    CurrentEpoch: _of_epoch,
    ProbeOwner: _of_probe,
    RemoveStaging: _named("staging removed"),
    RemovePart: _of_remove_part,
    AwaitReplica: _named("replica was busy"),
    Missed: _named("entry missed"),
    AwaitSource: _named("waited for a source"),
    Stop: _named("replaced process stopped"),
}
