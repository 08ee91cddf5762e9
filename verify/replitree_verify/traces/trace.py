"""Traces that a person can read: one line for each effect, who, what, and how it ended; the state at the end.

The same words are used for counterexamples, simulated runs and golden conversations.  A line is::

    r1 commit    check host@1, create blocks/a, create log/log-        -> applied as log-0, answer lost

Paths are below the table, or below the replica's own node when they are in it.  Effects on the memory of a process are left out
where the lines around them tell the same.  The words of an effect are in its row (`effects`).
"""

from __future__ import annotations

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
    RewriteEntry,
    RollEntry,
    SettleEntry,
    StorageEntry,
    ViewEntry,
    decode_block,
    decode_entry,
    dropped_partitions,
    quorum_of,
)
from replitree.protocol.core.streams import decode_stream
from replitree.protocol.membership.table import HALF_BUILT, LOST
from replitree.protocol.program.stages import Accept, AcceptCommand, AwaitDecided, TakeOver
from replitree.protocol.shares.moving import FindShare, FoundShare, ShareInDoubt
from replitree.protocol.state.counted import decode_quorum
from replitree_verify.effects.table import ROW_OF
from replitree_verify.effects.words import answer_text, commit_text, path_text
from replitree_verify.engine.moves import Found
from replitree_verify.engine.space import Space
from replitree_verify.engine.steps import Turn
from replitree_verify.outcomes.branch import Request
from replitree_verify.process.read_requests import AwaitAnswers, AwaitPointer, ShowRows
from replitree_verify.process.restore_duties import Found as FoundParts
from replitree_verify.rules.invariants import Look
from replitree_verify.world.history import tokens_of
from replitree_verify.world.memory import State
from replitree_verify.world.shared_disk import SharedDisk


def line_of(who: str, replica: str, turn: Turn, *, hidden: bool = False) -> str | None:
    """Return the line of one effect; None when it is not worth one and `hidden` ones are not wanted."""
    effect = turn.effect
    if isinstance(effect, Request):  # no procedure asks for it now: it was in flight
        verb, what = "late", commit_text(effect.operations, replica)
    else:
        row = ROW_OF[type(effect)]
        is_empty = isinstance(effect, fx.Reveal) and not effect.parts and not effect.gone
        if not hidden and (is_empty or not row.shown):
            return None
        if row.text is not None:
            verb, what = row.text(effect, replica)
        else:  # it has no words of its own: its name, and what the parentheses have
            verb, _, what = repr(effect).removesuffix(")").partition("(")
    ended = [each for each in (_outcome(turn, replica), turn.fate) if each]
    if isinstance(turn.outcome, fx.Unknown):
        ended = [turn.fate]  # what the procedure does not know, the reader does
    text = f"{who:<3} {verb:<9} {what}"
    return f"{text:<72} -> {', '.join(ended)}" if any(ended) else text.rstrip()


def trace_of(space: Space, way: tuple[Found, ...]) -> list[str]:
    """Return the lines of a way through a space: numbered steps, each with the effects that were joined to it."""
    lines, seats = list[str](), space.model.seats
    for number, (_, move, lags) in enumerate(way, 1):
        who, told = f"{move.who:<8}", list[str]()
        match move.kind:
            case "crash":
                told.append(f"{who} dies; the next process starts")
            case "expiry":
                told.append(f"{who} loses its session" if move.seat >= 0 else "the session of a dead process ends")
            case _:
                # A step that has nothing worth a line shows all: a numbered step is never empty.
                for hidden in (False, True):
                    texts = (line_of(who, seats[move.seat][1], turn, hidden=hidden) for turn in move.turns)
                    told = told or [text for text in texts if text is not None]
                if move.dies:
                    told.append(f"{who} dies meanwhile; the next process starts")
        if lags >= 0:
            told.append(f"{seats[lags][0]:<8} still sees coordination as it was before")
        lines += [f"{number if not place else '':>3} {text}" for place, text in enumerate(told)]
    return lines


# --- outcomes -----------------------------------------------------------------------------------------------------------


def _outcome(turn: Turn, replica: str) -> str:
    effect, outcome = turn.effect, turn.outcome
    match outcome:
        case fx.Applied(created=created):
            numbered = [short for path in created if "/log-" in (short := path_text(path, replica))]
            return f"applied as {numbered[0].removeprefix('log/')}" if numbered else "applied"
        case fx.Refused(operation, reason):
            return f"refused: {path_text(operation.path, replica)}, {reason.value}"
        case fx.Node():
            return _node(outcome)
        case fx.Many(nodes):
            found = [
                f"{path_text(p, replica)}={_node(n)}" for p, n in zip(effect.paths, nodes, strict=True) if n is not None
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
            return ", ".join(path_text(name, replica) for name in outcome) or "nothing"
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
    if value.startswith(b'{"query"'):
        stream = decode_stream(value, "")
        return f"batch {stream.batch} of {stream.query} ({stream.insert})"
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
            return f"get {rows}{drops}{quorum} ({entry.insert}, tokens {', '.join(tokens_of(entry))})"
        case MergeEntry(sources=sources):
            return f"merge {', '.join(sources)}"
        case MutateEntry(command=command, partitions=known):
            # Its rows were looked up in the known partitions; what was inserted since may have some in any.
            where = (
                entry.partition if known is UNSET else f"{', '.join(known) or 'nothing'} and all since {entry.since}"
            )
            return f"mutate {where} by {command}"
        case RewriteEntry(unchanged=relied):
            results = ", ".join(f"{each.source} by {each.content_hash}" for each in entry.results) or "nothing"
            rows = f" and get {', '.join(part.content_hash for part in entry.inserts)}" if entry.inserts else ""
            since = "" if relied is UNSET else f" if {', '.join(relied.partitions)} unchanged since {relied.since}"
            return f"rewrite {results}{rows}{since} ({entry.insert}, id {entry.id})"
        case DropEntry(partition=partition, block_min=first, block_max=last):
            return f"drop {partition}" if first is None else f"drop {partition} from {first} to {last}"
        case AlterEntry(command=command):
            return f"alter {command}"
        case StorageEntry(storage=storage, keep=keep):
            return f"storage {storage}" if keep is UNSET else f"keep {keep or 'by default'}"
        case ViewEntry(name=name, target=target, command=command):
            return f"view {name} into {target} {'ends' if command is UNSET else 'begins'}"
        case RollEntry():
            return "roll over"
        case LostEntry(part=part):
            return f"lost {part}"
        case SettleEntry() | FailEntry():
            return (
                f"settle {entry.index} ({', '.join(entry.holders)})"
                if isinstance(entry, SettleEntry)
                else f"fail {entry.index}"
            )


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
