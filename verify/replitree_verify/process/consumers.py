"""Consumers of the change feed: duties of models in which old parts are deleted (`process.tags`).

The stages are the replica's own (`replitree.protocol.program.tagger`).  No time is modelled: every hold may be over at any
moment, and the feed itself keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from replitree.protocol.program import tagger

DUTIES: dict[str, Callable[..., Generator[Any, Any, Any]]] = {
    "consume": tagger.make_consumer,
    "advance": tagger.move_consumer,
    "expire": tagger.expire_consumer,
    "unconsume": tagger.drop_consumer,
}
"""What a model can ask for, by name."""


def overdue_at(index: int) -> str:
    """Return why the hold of a consumer that stands at an index is over."""
    return f"still at {index}"
