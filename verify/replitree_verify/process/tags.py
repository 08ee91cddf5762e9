"""Tags and old parts: duties of models in which old parts are deleted.

Elsewhere the files of a part leave the disk as soon as reads do not show it any more.  In a model with the duty `clear` they
stay until a process deletes them by the replica's own stage (`replitree.protocol.program.tagger`).  No time is modelled: every
old part without a lease may be deleted at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from replitree.protocol.program import tagger

DUTIES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {
    "tag": tagger.make_tag,
    "untag": tagger.delete_tag,
    "clear": tagger.remove_next,
}
"""What a model can ask for, by name."""

GOES_ON = ("clear",)
"""The duties that the next process of a seat does as well."""
