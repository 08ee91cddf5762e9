"""What a model's clients and operators ask of one seat: a thread for each request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from replitree.protocol.core.effects import RequestId
from replitree.protocol.core.entries import MergeEntry
from replitree.protocol.propose.rewrite import Rewriting
from replitree_verify.world.model import Model
from replitree_verify.world.mutation_scope import has_condition

Asked: TypeAlias = tuple[str, str, tuple[Any, ...]]
"""The kind of a thread, its number for people, and what it begins with."""


def asked_of(model: Model, seat: str) -> Iterator[Asked]:
    """Return the threads of what a seat is asked for."""
    for insert in model.inserts:
        if insert.seat == seat:
            kind = "upload" if insert.uploaded else "insert"
            of_stream = () if insert.batch is None else (1, insert.batch, insert.takes_over)
            yield kind, str(insert.requests[0][0]), (insert.requests, insert.drops, insert.quorum, *of_stream)
    for ask in model.commands:
        if ask.seat == seat:
            yield "command", str(ask.request), (RequestId(ask.request), ask.command, has_condition(ask.command))
    for rewrite in model.rewrites:
        if rewrite.seat == seat:
            rewriting = Rewriting(rewrite.id, unchanged=rewrite.unchanged)
            yield "rewrite", str(rewrite.request), (RequestId(rewrite.request), rewriting)
    for read in model.reads:
        if read.seat == seat:
            yield "read", str(read.number), (read.number, read.level, read.known)
    yield from _done_once(model, seat)


def _done_once(model: Model, seat: str) -> Iterator[Asked]:
    for number, merge in enumerate(model.merges, 1):
        if merge.seat == seat:
            yield "leader", str(number), ((MergeEntry(dict(model.seats)[seat], merge.sources),),)
    for kill in model.kills:
        if kill.seat == seat:
            yield "kill", "", (kill.mutation,)
    for number, duty in enumerate(model.duties, 1):
        if duty.seat == seat:
            yield "duty", f"{duty.name}{number}", (duty.name, *duty.arguments)
