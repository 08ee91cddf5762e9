"""Tags and old parts: duties of models in which old parts are deleted.

Elsewhere the files of a part leave the disk as soon as reads do not show it any more.  In a model with the duty `clear` they
stay until a process deletes them by the replica's own stage (`replitree.protocol.program.tagger`).  No time is modelled: every
old part without a lease may be deleted at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import Any

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import LogIndex
from replitree.protocol.program import tagger
from replitree_verify.world.model import TABLE

DUTIES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {
    "tag": tagger.make_tag,
    "untag": tagger.delete_tag,
    "clear": tagger.remove_next,
}
"""What a model can ask for, by name."""

GOES_ON = ("clear",)
"""The duties that the next process of a seat does as well."""


def draw_duty(random: Random, tree: Tree, name: str, end: LogIndex) -> tuple[Any, ...]:
    """Return what a replica is asked for: a tag or a consumer of this name, or a change of one that is there.

    Parameters
    ----------
    random, tree
        What draws, and coordination.
    end
        Where the replica stands in the log.
    """
    index = LogIndex(random.randint(0, end))
    if random.random() < 0.5:
        known = tree.children(layout.tags(TABLE))
        if known and random.random() < 0.3:
            return "untag", random.choice(known)
        return "tag", name, None if random.random() < 0.5 else index
    known = tree.children(layout.consumers(TABLE))
    duty = random.choice(("consume", "advance", "expire", "unconsume")) if known else "consume"
    if duty == "consume" or not known:
        return duty, name, index, random.choice(("feed", "snapshot"))
    return (duty, random.choice(known), *((index,) if duty == "advance" else ()))
