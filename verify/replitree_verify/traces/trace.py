"""Traces that a person can read: one line for each effect, who, what, and how it ended; the state at the end.

The same words are used for counterexamples, simulated runs and golden conversations.  A line is::

    r1 commit    check host@1, create blocks/a, create log/log-        -> applied as log-0, answer lost

Paths are below the table, or below the replica's own node when they are in it.  Effects on the memory of a process are left out
where the lines around them tell the same (`HIDDEN`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import UNSET

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.entries import (
    AlterEntry,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    LostEntry,
    MergeEntry,
    MutateEntry,
    RollEntry,
    SettleEntry,
    StorageEntry,
    decode_block,
    decode_entry,
    dropped_partitions,
    quorum_of,
)
from replitree.protocol.membership.table import HALF_BUILT, LOST
from replitree.protocol.program.mender_effects import (
    AskAgain,
    AwaitLacking,
    AwaitLoss,
    Losing,
    PutBack,
    SeekFiles,
    SeekShares,
    TakeFromStore,
    TakeOut,
    Telling,
    WholeAgain,
    WriteAnew,
)
from replitree.protocol.program.stages import (
    Accept,
    AcceptCommand,
    AskReload,
    AwaitCleaning,
    AwaitDecided,
    AwaitElection,
    AwaitIdle,
    AwaitMutation,
    AwaitOpen,
    AwaitParts,
    AwaitPlace,
    AwaitPull,
    AwaitReplica,
    AwaitSource,
    AwaitStrays,
    AwaitTrouble,
    AwaitUpkeep,
    AwaitWork,
    BeginLoad,
    CurrentSharer,
    Elected,
    Forget,
    GiveBack,
    Lack,
    LetGoEnded,
    LookAtParts,
    Missed,
    Opened,
    Quieten,
    Release,
    ReportTrouble,
    Serve,
    Stop,
    TakeIn,
    TakeOver,
)
from replitree.protocol.rescue.fsck_look import AskReferences, ListAges, ListObjects
from replitree.protocol.shares.moving import FindShare, FoundShare, ShareInDoubt
from replitree.protocol.state.counted import decode_quorum
from replitree_verify.engine.moves import Found
from replitree_verify.engine.space import Space
from replitree_verify.outcomes.branch import Request
from replitree_verify.outcomes.steps import Turn
from replitree_verify.process.fsck import RepairCommit, ReportFindings
from replitree_verify.process.lost_parts import AwaitBroken, Break, Heal, KeepCopy
from replitree_verify.process.read_requests import (
    AwaitAnswers,
    AwaitPointer,
    AwaitReadable,
    NotShown,
    Shown,
    ShowRows,
    Told,
)
from replitree_verify.process.restore_duties import Found as FoundParts
from replitree_verify.process.restore_duties import LockDisk, OpenTable, UnlockDisk
from replitree_verify.process.threads import Appear
from replitree_verify.rules.invariants import Look
from replitree_verify.traces import shares
from replitree_verify.world.memory import State
from replitree_verify.world.model import TABLE
from replitree_verify.world.shared_disk import SharedDisk

HIDDEN = (
    fx.AdoptEpoch, AskAgain, AskReload, AwaitIdle, AwaitPlace, AwaitPull, AwaitTrouble, AwaitCleaning, AwaitWork,
    BeginLoad, fx.CurrentEpoch, Forget, GiveBack, Lack, Losing, Quieten, Release, SeekFiles, SeekShares,
    TakeIn, TakeOver, Telling,
)  # fmt: skip
"""Effects on memory that the lines around them tell; a step of a counterexample that has nothing else shows them."""

_NUMBER = re.compile(r"-0{0,9}(\d+)$")


def line_of(who: str, replica: str, turn: Turn, *, hidden: bool = False) -> str | None:
    """Return the line of one effect; None when it is not worth one and `hidden` ones are not wanted."""
    effect = turn.effect
    if not hidden and (
        isinstance(effect, HIDDEN) or (isinstance(effect, fx.Reveal) and not effect.parts and not effect.gone)
    ):
        return None
    if type(effect) in _VERBS:
        verb, what = _VERBS[type(effect)](effect, replica)
    else:  # it has no words of its own: its name, and what the parentheses have
        verb, _, what = repr(effect).removesuffix(")").partition("(")
    ended = [each for each in (_outcome(turn, replica), turn.fate) if each]
    if isinstance(turn.outcome, fx.Unknown):
        ended = [turn.fate]  # what the procedure does not know, the reader does
    text = f"{who:<3} {verb:<9} {what}"
    return f"{text:<72} -> {', '.join(ended)}" if any(ended) else text.rstrip()


def trace_of(space: Space, way: tuple[Found, ...]) -> list[str]:
    """Return the lines of a way through a space: numbered steps, each with the effects that were joined to it."""
    lines = []
    for number, found in enumerate(way, 1):
        first = f"{number:>3} "
        for text in _lines_of_step(space, found):
            lines.append(f"{first}{text}")
            first = "    "
    return lines


def _lines_of_step(space: Space, found: Found) -> Iterator[str]:
    _, move, lags = found
    seats = space.model.seats
    match move.kind:
        case "crash":
            yield f"{move.who:<8} dies; the next process starts"
        case "expiry":
            yield f"{move.who:<8} loses its session" if move.seat >= 0 else "the session of a dead process ends"
        case _:
            replica = seats[move.seat][1]
            who = f"{move.who:<8}"
            shown = [line for turn in move.turns if (line := line_of(who, replica, turn)) is not None]
            # A step that has nothing worth a line shows all: a numbered step is never empty.
            yield from shown or (
                line for turn in move.turns if (line := line_of(who, replica, turn, hidden=True)) is not None
            )
            if move.dies:
                yield f"{move.who:<8} dies meanwhile; the next process starts"
    if lags >= 0:
        yield f"{seats[lags][0]:<8} still sees coordination as it was before"


# --- effects ------------------------------------------------------------------------------------------------------------


def _path(path: str, replica: str) -> str:
    """Shorten a path: below the replica's own node, or below the table; numbers without zeros.

    >>> _path("/t/replicas/r1/queue/queue-0000000007", "r1"), _path("/t/log/log-0000000000", "r1")
    ('queue/queue-7', 'log/log-0')
    """
    short = path.removeprefix(f"{TABLE.path}/").removeprefix(f"replicas/{replica}/")
    return _NUMBER.sub(r"-\1", short)


def _paths(paths: tuple[str, ...], replica: str) -> str:
    short = [_path(path, replica) for path in paths]
    return ", ".join(short) if len(short) <= 3 else f"{short[0]} … {short[-1]}"


def _operation(operation: fx.Operation, replica: str) -> str:
    path = _path(operation.path, replica)
    match operation:
        case fx.Check(version=version):
            return f"check {path}@{version}"
        case fx.Create(ephemeral=ephemeral):
            return f"create {path}{' (ephemeral)' if ephemeral else ''}"
        case fx.Set(value=value, version=version):
            return f"set {path}@{version} to {value.decode()}"
        case fx.Delete():
            return f"delete {path}"


def _commit(operations: tuple[fx.Operation, ...], replica: str) -> str:
    return ", ".join(_operation(operation, replica) for operation in operations)


def _indexes(entries: tuple[Any, ...]) -> str:
    return ", ".join(str(item.index) for item in entries) or "-"


_VERBS: dict[type, Callable[[Any, str], tuple[str, str]]] = {
    fx.Get: lambda e, r: ("get", _path(e.path, r)),
    fx.GetMany: lambda e, r: ("get", _paths(e.paths, r)),
    fx.Exists: lambda e, r: ("watch" if e.watch else "exists", _path(e.path, r)),
    fx.Children: lambda e, r: ("list", _path(e.path, r)),
    fx.Sync: lambda _e, _r: ("sync", ""),
    fx.Commit: lambda e, r: ("commit", _commit(e.operations, r)),
    Request: lambda e, r: ("late", _commit(e.operations, r)),
    fx.Stage: lambda e, _r: ("stage", f"{e.staging}: rows of {', '.join(map(str, e.requests))}"),
    fx.Publish: lambda e, _r: ("publish", f"{e.staging} as {', '.join(name for _, name in e.names)}"),
    fx.FetchMany: lambda e, _r: (
        "fetch",
        "; ".join(f"{f.part} from {', '.join(f.sources) or 'no replica'}" for f in e.fetches),
    ),
    fx.Reveal: lambda e, _r: (
        "reveal",
        (", ".join(e.parts) or "nothing") + (f" instead of {', '.join(e.gone)}" if e.gone else ""),
    ),
    fx.Merge: lambda e, _r: ("merge", f"{', '.join(e.sources)} into {e.result}"),
    fx.Mutate: lambda e, _r: ("mutate", f"{e.source} by {e.command} into {e.result}"),
    fx.Link: lambda e, _r: ("link", f"{e.source} as {e.result}"),
    fx.Detach: lambda e, _r: ("detach", ", ".join(e.parts)),
    fx.ListStaging: lambda _e, _r: ("list", "staging on disk"),
    fx.RemoveStaging: lambda e, _r: ("sweep", e.staging),
    fx.ListParts: lambda _e, _r: ("list", "parts on disk"),
    fx.FindPart: lambda e, _r: ("find", e.part),
    fx.RemovePart: lambda e, _r: ("set aside", e.part),
    fx.CurrentEpoch: lambda _e, _r: ("remember", "the epoch"),
    fx.AdoptEpoch: lambda e, _r: ("remember", f"epoch {e.epoch}"),
    AwaitTrouble: lambda _e, _r: ("wakes", "must activate again"),
    AwaitPull: lambda _e, _r: ("wakes", "something to pull"),
    AwaitWork: lambda e, _r: ("wakes", "something to make" if e.makes else "something to execute"),
    AwaitParts: lambda e, _r: ("leads", f"{', '.join(e.names)} can be merged"),
    AwaitMutation: lambda e, _r: ("wakes", f"{e.id} is in the queue"),
    BeginLoad: lambda _e, _r: ("load", "the state"),
    AwaitStrays: lambda _e, _r: ("wakes", "a registered part is covered"),
    AwaitElection: lambda _e, _r: ("wakes", "the election"),
    Elected: lambda e, _r: ("remember", f"{'leads' if e.leads else 'does not lead'}"),
    Lack: lambda e, _r: ("lacks", _names(e.parts) or "nothing"),
    Quieten: lambda _e, _r: ("forget", "the trouble"),
    Release: lambda e, _r: ("release", e.staging),
    TakeIn: lambda e, _r: ("remember", f"pointer {e.place.pointer.index}, more in the queue: {_indexes(e.entries)}"),
    TakeOver: lambda e, _r: ("remember", f"pointer {e.loaded.place.pointer.index}, queue {_indexes(e.loaded.queue)}"),
    GiveBack: lambda e, _r: ("remember", f"executed {list(e.done)}, postponed {[each.index for each in e.postponed]}"),
    AskReload: lambda _e, _r: ("remember", "to load the queue again"),
    fx.ProbeOwner: lambda e, _r: ("probe", f"owner {e.value.decode()}"),
    fx.Answer: lambda e, _r: ("answer", f"request {e.request}: {answer_text(e.answer)}"),
    Appear: lambda _e, _r: ("starts", ""),
    AwaitDecided: lambda e, _r: ("waits", f"for the quorum of {e.index}"),
    AwaitOpen: lambda _e, _r: ("wakes", "an insert is open"),
    AwaitReplica: lambda _e, _r: ("wakes", "no process holds the replica"),
    Serve: lambda _e, _r: ("serve", ""),
    Stop: lambda _e, _r: ("stops", "another process has the replica"),
    Missed: lambda e, _r: ("missed", f"log entry {e.index}: must activate again"),
    Forget: lambda _e, _r: ("forget", "everything: the replica is not in the table"),
    AwaitIdle: lambda _e, _r: ("wakes", "nothing runs"),
    AwaitSource: lambda _e, _r: ("wakes", "there is a good replica"),
    AwaitCleaning: lambda _e, _r: ("wakes", "it is its turn"),
    LockDisk: lambda e, _r: ("lock", f"the data folder of {e.replica}"),
    UnlockDisk: lambda _e, _r: ("unlock", "the data folder"),
    OpenTable: lambda _e, _r: ("starts", "coordination has the table"),
    AwaitPlace: lambda _e, _r: ("wakes", "it is its turn"),
    fx.MakeEmpty: lambda e, _r: ("make", f"{e.result} without rows"),
    Break: lambda e, _r: ("breaks", e.what),
    Heal: lambda e, _r: ("heals", e.part),
    KeepCopy: lambda e, _r: ("keeps", f"a copy of {e.part}"),
    PutBack: lambda e, _r: ("put back", _names(e.parts)),
    TakeOut: lambda e, _r: ("take out", _names(e.parts)),
    WholeAgain: lambda e, _r: ("mended", ", ".join(e.parts)),
    AwaitBroken: lambda e, _r: ("wakes", f"the files of {e.part} are gone"),
    AwaitLacking: lambda _e, _r: ("wakes", "something to mend, or to note"),
    AwaitLoss: lambda e, _r: ("wakes", f"{e.part} can't be had here"),
    ReportTrouble: lambda _e, _r: ("trouble", "must activate again"),
    Accept: lambda e, _r: ("accept", "request " + ", ".join(f"{each.id} (token {each.block})" for each in e.requests)),
    AcceptCommand: lambda e, _r: ("accept", f"request {e.request}"),
    LookAtParts: lambda e, _r: ("look", f"for rows that {e.command} covers"),
    fx.NextNumber: lambda e, r: ("count", _path(e.path, r)),
    fx.CurrentSession: lambda _e, _r: ("remember", "the session"),
    AwaitAnswers: lambda e, _r: ("begins", f"a {e.level} read"),
    AwaitPointer: lambda _e, _r: ("remember", "the pointer"),
    AwaitReadable: lambda e, _r: (
        "wakes",
        f"all below {e.position} is {'executed' if e.executed else 'pulled'}",
    ),
    ShowRows: lambda e, _r: ("shows", ", ".join(part.name for part in e.parts) or "nothing"),
    Opened: lambda e, _r: ("open", f"the object store, as {e.incarnation}"),
    CurrentSharer: lambda _e, _r: ("remember", "its incarnation"),
    ListObjects: lambda _e, _r: ("list", "all objects of the store"),
    ListAges: lambda e, r: ("list", f"{_path(e.path, r)}, with ages"),
    AskReferences: lambda e, _r: ("ask", f"{e.replica.name} for its shares"),
    RepairCommit: lambda e, r: ("repair", _commit(e.operations, r)),
    ReportFindings: lambda e, _r: (
        "says",
        ", ".join(f"{each.kind.value} {each.share}" for each in e.findings) or "all is well",
    ),
    AwaitUpkeep: lambda _e, _r: ("wakes", "shares to look after"),
    **shares.VERBS,
    TakeFromStore: lambda e, _r: ("take", f"{_names(e.parts)} from the store"),
    WriteAnew: lambda e, _r: ("write anew", _names(e.parts)),
    LetGoEnded: lambda e, _r: (
        "remember",
        f"{', '.join(e.left.shares)} of {e.left.part or 'what was staged'} {'released' if e.is_gone else 'still owned'}",
    ),
}


def _names(parts: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(name for name, _ in parts)


# --- outcomes -----------------------------------------------------------------------------------------------------------


def answer_text(answer: Told) -> str:
    """Return what a client hears."""
    match answer:
        case fx.Inserted(index, settled):
            return f"inserted at {index}{_settled(settled)}"
        case fx.Duplicate(index, settled):
            return f"duplicate of {'an insert that is gone' if index is None else index}{_settled(settled)}"
        case fx.NotInserted(reason):
            return f"failed: {reason}"
        case fx.MaybeInserted():
            return "outcome unknown"
        case Shown(position, requests):
            return f"the rows of {list(requests)}, everything below {position}"
        case NotShown(reason):
            return f"nothing: {reason}"


def _settled(index: fx.LogIndex | None) -> str:
    return "" if index is None else f", settled at {index}"


def _outcome(turn: Turn, replica: str) -> str:
    effect, outcome = turn.effect, turn.outcome
    match outcome:
        case fx.Applied(created=created):
            numbered = [short for path in created if "/log-" in (short := _path(path, replica))]
            return f"applied as {numbered[0].removeprefix('log/')}" if numbered else "applied"
        case fx.Refused(operation, reason):
            return f"refused: {_path(operation.path, replica)}, {reason.value}"
        case fx.Node():
            return _node(outcome)
        case fx.Many(nodes):
            found = [
                f"{_path(p, replica)}={_node(n)}" for p, n in zip(effect.paths, nodes, strict=True) if n is not None
            ]
            return ", ".join(found) or "nothing"
        case fx.Staged() | fx.Fetched():
            return ""
        case fx.Published(missing):
            return f"missing: {', '.join(missing)}" if missing else ""
        case FoundParts(parts=parts):
            return ", ".join(part for part, _ in parts) or "nothing"
        case fx.Made(content_hash):
            return content_hash
        case fx.StoreFailed(reason) | fx.NotFetched(_, reason) | fx.Cancelled(reason) | ShareInDoubt(reason):
            return reason
        case fx.Owner():
            return outcome.value
        case FoundShare(share, is_noted):
            return f"{share}{', which is still to be released here' if is_noted else ''}"
    return _plain(effect, outcome, replica)


def _plain(effect: Any, outcome: Any, replica: str) -> str:
    match effect:
        case fx.FetchMany() if outcome is not None:
            return ", ".join(each.reason if isinstance(each, fx.NotFetched) else "fetched" for each in outcome)
        case fx.Children() | fx.ListStaging() | fx.ListParts() if outcome is not None:
            return ", ".join(_path(name, replica) for name in outcome) or "nothing"
        case fx.Exists():
            return "there" if outcome else "not there"
        case fx.CurrentEpoch() | fx.NextNumber() | fx.CurrentSession() | AwaitPointer():
            return str(outcome)
        case AwaitDecided():
            return "it is known" if outcome.is_decided else "no longer"
        case AwaitAnswers():
            return f"must show all below {outcome.lowest}"
        case ShowRows():
            return answer_text(outcome)
        case fx.FindPart():
            return outcome or "nothing"
        case fx.Get() | FindShare():
            return "nothing"
        case TakeOver() if outcome is None:
            return "too old"
        case Accept() | AcceptCommand() if outcome is not None:
            return f"epoch {outcome.epoch}"
    return ""


def _node(node: fx.Node) -> str:
    value = node.value
    if value.startswith(b'{"kind"'):
        return entry_text(decode_entry(value, ""))
    if value.startswith(b'{"insert"'):
        return decode_block(value, "").insert
    if value.startswith(b'{"quorum"'):
        quorum = decode_quorum(value, "")
        return f"{','.join(quorum.replicas)} of {quorum.quorum}@{node.version}"
    return f"{value.decode()}@{node.version}"


def entry_text(entry: Entry) -> str:
    """Return a log entry in words."""
    match entry:
        case GetEntry():
            rows = ", ".join(part.content_hash for part in entry.parts)
            drops = f" instead of {', '.join(dropped_partitions(entry))}" if dropped_partitions(entry) else ""
            quorum = f" quorum {quorum_of(entry)}" if quorum_of(entry) else ""
            return f"get {rows}{drops}{quorum} ({entry.insert}, tokens {', '.join(entry.blocks)})"
        case MergeEntry(sources=sources):
            return f"merge {', '.join(sources)}"
        case MutateEntry(command=command, partitions=known):
            # Its rows were looked up in the known partitions; what was inserted since may have some in any.
            where = (
                entry.partition if known is UNSET else f"{', '.join(known) or 'nothing'} and all since {entry.since}"
            )
            return f"mutate {where} by {command}"
        case DropEntry(partition=partition, block_min=None):
            return f"drop {partition}"
        case DropEntry(partition=partition, block_min=first, block_max=last):
            return f"drop {partition} from {first} to {last}"
        case AlterEntry(command=command):
            return f"alter {command}"
        case StorageEntry(storage=storage):
            return f"storage {storage}"
        case RollEntry():
            return "roll over"
        case LostEntry(part=part):
            return f"lost {part}"
        case SettleEntry(index=index, holders=holders):
            return f"settle {index} ({', '.join(holders)})"
        case FailEntry(index=index):
            return f"fail {index}"


# --- states ---------------------------------------------------------------------------------------------------------------


def state_of(look: Look) -> list[str]:
    """Return the lines that tell a state: the log, each replica, what clients heard."""
    log, model = look.log, look.model
    lines = [
        f"log {index}: {entry_text(entry)}{'  (removed)' if index < log.first else ''}" for index, entry in log.raw
    ] or ["log is empty"]
    marks = {LOST: "  lost", HALF_BUILT: "  lost, half-built", None: "  being dropped"}
    for name in model.replicas:
        replica, disk = log.replica(name), look.disks[name]
        if log.tree.get(layout.log_pointer(replica)) is None:
            lines.append(f"{name} does not belong to the table")
            continue
        queue = ", ".join(str(index) for index, _ in log.queue(replica))
        parts = ", ".join(log.registered(replica))
        mark = "" if log.is_good(replica) else marks[log.mark(replica)]
        lines.append(f"{name} pointer {log.pointer(replica)}  queue {queue or '-'}  registered {parts or '-'}{mark}")
        published = ", ".join(f"{part} ({content})" for part, content in disk.parts)
        staged = ", ".join(f"{each.staging}{' (torn)' if each.torn else ''}" for each in disk.folders)
        lines.append(f"{name} disk: parts {published or '-'}  staging {staged or '-'}")
        if isinstance(disk, SharedDisk):
            owned = ", ".join(f"{part} in {share}" for part, share in disk.shares)
            left = ", ".join(share for each in disk.leaving for share in each.shares)
            lines.append(f"{name} shares: {owned or '-'}  to release {left or '-'}")
    if look.objects is not None:
        shares = sorted({share for share, _ in look.objects.there})
        there = (f"{share}{'' if look.objects.is_whole(share) else ' (in part)'}" for share in shares)
        late = ", ".join(f"{type(each).__name__} {each.share}" for each in look.objects.late)
        lines.append(f"object store: {', '.join(there) or '-'}{f'  on their way {late}' if late else ''}")
    for seat, _ in model.seats:
        memory = look.memories[seat]
        if memory.state is not State.OFF:
            shown = ", ".join(part.name for part in memory.visible)
            lines.append(
                f"{seat} process {memory.incarnation}: {memory.state.value}, epoch {memory.epoch}, shows {shown or '-'}"
            )
    lines += [f"client {request}: {answer_text(answer)}" for request, answer in sorted(look.answers.items()) if answer]
    return lines
