"""What became of commands, as far as one replica knows: whether they apply, are executed here, and what they change."""

from __future__ import annotations

from collections.abc import Callable

from replitree.protocol.core import effects as fx
from replitree.protocol.core.entries import AlterEntry, MergeEntry, MutateEntry, StorageEntry, ViewEntry
from replitree.protocol.core.parts import Part, merged_part, parse_part
from replitree.replica.perform.progress import Progress


def outcome_of(progress: Progress, index: fx.LogIndex) -> dict[str, object]:
    """Return what this replica knows of the command at `index`: whether it applies, whether it is executed, what it changes."""
    with progress.changed:
        change = progress.history.change(index)
        known = progress.history.command(index)
        pulled = progress.place is not None and index < progress.place.pointer.index
        finished = progress.is_executed(index)
        reason, _ = progress.why_waiting(index)
    if not pulled:
        reason = "this replica has not pulled it yet"
    is_alter = known is not None and isinstance(known.entry, AlterEntry | StorageEntry | ViewEntry)
    applied = None if change is None else is_alter or not change.is_empty
    return {
        "index": index,
        "applied": applied,
        "finished": finished,
        "removed": len(change.removed) if change is not None else None,
        "added": len(change.added) if change is not None else None,
        "reason": reason,
    }


def merge_outcome(progress: Progress, index: fx.LogIndex) -> dict[str, object]:
    """Return what this replica knows of the merge at `index`."""
    known = progress.history.command(index)
    answer = outcome_of(progress, index)
    row: dict[str, object] = {key: answer[key] for key in ("index", "applied", "finished", "reason")}
    if known is not None and isinstance(known.entry, MergeEntry):
        sources = tuple(parse_part(name) for name in known.entry.sources)
        row |= {
            "partition": sources[0].partition,
            "sources": known.entry.sources,
            "result": merged_part(sources).name,
        }
    return row


def mutations(progress: Progress, held: Callable[[Part], bool]) -> list[dict[str, object]]:
    """Return the mutations of the queue, then the last ones that are executed.

    Parameters
    ----------
    held
        Whether a part, or a later form of it, is here.
    """
    with progress.changed:
        queued = [item for item in progress.queue() if isinstance(item.entry, MutateEntry)]
        waiting = {item.index for item in queued}
        done = [
            item
            for item in progress.history.commands()
            if isinstance(item.entry, MutateEntry) and item.index not in waiting and not item.change.is_empty
        ]
        rows: list[dict[str, object]] = []
        for item in (*queued, *done[-100:][::-1]):
            entry, parts, finished = item.entry, item.change.added, progress.is_executed(item.index)
            assert isinstance(entry, MutateEntry)
            left = 0 if finished else sum(not held(part) for part in parts)
            reason, tries = progress.why_waiting(item.index)
            row: dict[str, object] = {
                "index": item.index,
                "id": entry.id,
                "replica": entry.replica,
                "partition": entry.partition,
                "command": entry.command,
                "parts_done": len(parts) - left,
                "parts_left": left,
                "reason": reason,
                "tries": tries,
                "finished": finished,
            }
            rows.append(row)
        return rows


__all__ = ["merge_outcome", "mutations", "outcome_of"]
