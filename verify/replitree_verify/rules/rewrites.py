"""What a rewrite must keep: it was made of rows that its client has read, and counts only while they are what they were.

Every command, a rewrite too, is given once.  A row that a rewrite has taken from a source has its id behind it, whether it
stays in the result or moves to a new part.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from replitree.protocol.core.effects import Inserted, NotInserted, Why
from replitree.protocol.core.entries import (
    EVERY_PARTITION,
    AlterEntry,
    DropEntry,
    MutateEntry,
    RewriteEntry,
    staged_names,
)
from replitree.protocol.core.fold import NOTHING, settled
from replitree.protocol.core.parts import Part
from replitree.protocol.propose.propose import command_block
from replitree_verify.world.disk import rows_in
from replitree_verify.world.windows import forgotten_between

if TYPE_CHECKING:
    from replitree.protocol.state.pull import Queued
    from replitree_verify.rules.invariants import Look


def commands_are_given_once(look: Look) -> str | None:
    """I3 for commands: an id is in the log once, or again after it was forgotten, for another replica or another request."""
    first: dict[str, tuple[int, str]] = {}
    asked = Counter((each.command.id, each.command.replica) for each in look.model.commands)
    for index, entry in look.log.raw:
        if isinstance(entry, MutateEntry | RewriteEntry | DropEntry | AlterEntry):
            earlier, by = first.setdefault(entry.id, (index, entry.replica))
            forgotten = forgotten_between(look.log.tree, command_block(entry.id), earlier, index)
            is_asked_again = by != entry.replica or asked[entry.id, by] > 1
            if earlier != index and not (forgotten and is_asked_again):
                return f"I3: command {entry.id} is in the log twice, at {earlier} and at {index}"
    return None


def rewrites_apply_as_a_whole(look: Look) -> str | None:
    """REWRITTEN, SERIAL: a rewrite that applies takes out its sources, brings all their rows, and has read the rest."""
    for item in look.log.entries:
        entry = item.entry
        if not isinstance(entry, RewriteEntry) or item.change == NOTHING:
            continue
        removed = [part.name for part in item.change.removed]
        brought = len(entry.results) + len(entry.inserts)
        if removed != [each.source for each in entry.results] or len(item.change.added) != brought:
            return f"REWRITTEN: the rewrite at {item.index} was applied in part: it has taken out {', '.join(removed)}"
        before = sorted(f"{row}~{entry.id}" for part in item.change.removed for row in look.log.lineage[part].rows)
        contents = (content for _, _, content in staged_names(entry, item.index))
        after = sorted(row for content in contents for row in rows_in(content) if row.endswith(f"~{entry.id}"))
        if before != after:
            return f"REWRITTEN: the rewrite at {item.index} was made of other rows: {' and '.join(before) or 'none'}"
        unseen = _unseen_rows(look, item, entry)
        if unseen:
            return f"SERIAL: the client of the rewrite at {item.index} has not read {' and '.join(unseen)}"
    return None


def _unseen_rows(look: Look, item: Queued, entry: RewriteEntry) -> list[str]:
    """Return the rows of the partitions that a rewrite relies on which were not there when its client read them."""
    # What its client has read is asked of the client: the entry itself may not say it.
    log = look.log
    relied = next((rewrite.unchanged for rewrite in look.model.rewrites if rewrite.id == entry.id), None)
    if relied is None:
        return []

    def is_in(part: Part) -> bool:
        return EVERY_PARTITION in relied.partitions or part.partition in relied.partitions

    then = settled(log.parts_at(relied.since), log.open_at(relied.since))
    read = Counter(row for part in then if is_in(part) for row in log.lineage[part].rows)
    # The client has read its sources, whatever else it has seen.
    others = (part for part in log.parts_at(item.index) if is_in(part) and part not in item.change.removed)
    now = Counter(row for part in others for row in log.lineage[part].rows)
    return sorted((now - read).elements())


def clients_hear_whether_rewrites_apply(look: Look) -> str | None:
    """REWRITTEN: a rewrite counts where its client hears an index, and nowhere if its client hears of a change."""
    applied = {
        item.entry.id: item.index
        for item in look.log.entries
        if isinstance(item.entry, RewriteEntry) and item.change != NOTHING
    }
    for rewrite in look.model.rewrites:
        answer, index = look.answers.get(rewrite.request), applied.get(rewrite.id)
        if isinstance(answer, Inserted) and answer.index != index:
            return (
                f"REWRITTEN: request {rewrite.request} was told that its rewrite counts at {answer.index}; it does not"
            )
        if isinstance(answer, NotInserted) and answer.why is Why.CHANGED and index is not None:
            return (
                f"REWRITTEN: request {rewrite.request} was told that nothing was changed; its rewrite counts at {index}"
            )
    return None
