"""What must hold of a table that was restored: `RESTORED`, and what the other invariants allow because of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replitree.protocol.core.entries import GetEntry
from replitree_verify.rules.lost import is_fragile
from replitree_verify.world.past import declared, past_disk
from replitree_verify.world.windows import forgotten_between

if TYPE_CHECKING:
    from replitree_verify.rules.invariants import Look


def may_come_again(token: str, earlier: GetEntry, entry: GetEntry, first: int, index: int, look: Look) -> bool:
    """Whether a token was forgotten before it came again, in another request, or coordination had lost all of them."""
    since = declared(look.log.tree)
    if since is not None and since.restored and first < since.at <= index:
        return True
    # One request has one staging id, with `.N` for its parts: its own repetition must find the token.
    other = entry.insert.rpartition(".")[0] != earlier.insert.rpartition(".")[0]
    return other and forgotten_between(look.log.tree, token, first, index)


def restored_table_is_what_a_disk_had(look: Look) -> str | None:
    """RESTORED: the table begins with all the parts that were whole on the disk of one replica."""
    since = declared(look.log.tree)
    node = None if since is None or not since.restored else look.log.tree.get(past_disk(since.restored))
    if since is None or node is None:
        return None
    lacking = [part for part in node.value.decode().split() if part not in since.parts and not is_fragile(part, look)]
    if lacking:
        return f"RESTORED: {since.restored} had {', '.join(lacking)}, the table was restored without"
    return None
