"""What the scope of a mutation must keep: the condition decides, not which parts the proposer happened to know.

Only commands with a condition (``x@3``, see `disk`) can break it; those without one have no scope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replitree.protocol.core.entries import EVERY_PARTITION, MutateEntry
from replitree_verify.world.disk import is_covered

if TYPE_CHECKING:
    from replitree_verify.rules.invariants import Look


def covered_rows_are_mutated(look: Look) -> str | None:
    """MUTATED: after a mutation its condition has changed every earlier row that it covers, and no other row."""
    log = look.log
    for item in log.entries:
        entry = item.entry
        if not isinstance(entry, MutateEntry) or "@" not in entry.command or entry.id in log.killed:
            continue  # a killed mutation may have changed some parts and not others
        name = entry.command.partition("@")[0]
        for part in log.parts_at(item.index + 1):
            lost = log.lost_requests(part.partition)
            for row in log.lineage[part].rows:
                before, *mutations = row.split("~")
                if int(before) in lost:
                    continue  # an empty part has nothing to change, whatever its rows were
                # As the row was when the condition was looked at: without this mutation's own mark.
                earlier = [each for each in mutations if each != name]
                asked = entry.partition in (EVERY_PARTITION, part.partition)
                wanted = asked and is_covered("~".join((before, *earlier)), entry.command)
                if wanted is not (name in mutations):
                    why = "is not changed" if wanted else "is changed"
                    return f"MUTATED: row {row} of {part.name} {why} by the mutation at {item.index}"
    return None
