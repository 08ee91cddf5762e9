"""Mutants of a group on an object store, and of the store itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from replitree.tablet import member, store
from replitree.tablet.effects import Procedure
from replitree.tablet.member import Failed, Holdings, Reply, Sweep
from replitree.verify.tablets.mutant import Mutant

_answer, _asked, _change = store.answer, store._asked, store._change  # noqa: SLF001 - mutants reach into what they break


def _silence_is_success(rule: Callable[[Holdings], tuple[Holdings, Reply]]) -> Procedure[tuple[Holdings, Reply]]:
    """Take it for done when there is no answer to the replacement of the state."""
    while True:
        state = yield store.ReadState()
        if state is None:
            return Holdings(), Failed("silent")
        held, reply = rule(state.held)
        if held == state.held:
            return held, reply
        changed = yield store.ReplaceState(held, state.tag)
        if not isinstance(changed, store.Changed):
            return held, reply


def _whatever_is_there(held: Holdings, request: store.StoreRequest) -> tuple[Holdings, Any]:
    """Replace the state whether it is as it was read or not."""
    if isinstance(request, store.ReplaceState):
        request = store.ReplaceState(request.state, store.state_of(held))
    return _answer(held, request)


def _refusal_is_there(request: store.StoreRequest, kind: type[Any]) -> Procedure[Any]:
    """Take it for created when the store did not say so, as if another one had it already."""
    if isinstance(request, store.Create):
        reply = yield request
        return store.Created() if reply is None else reply
    return (yield from _asked(request, kind))


def _fence_swept(request: Sweep) -> Procedure[Reply]:
    """Take the fences away with what the barrier passes."""

    def swept(state: Holdings) -> tuple[Holdings, Reply]:
        held, reply = member.answer(state, request)
        return replace(held, fences=()), reply

    _, reply = yield from _change(swept)
    return reply


STORE_MUTANTS = (
    Mutant("fence-not-looked-at", "store_take_over", "I3", ((store, "_refusal", lambda *_: None),)),
    Mutant("silence-is-success", "store_away", "I3", ((store, "_change", _silence_is_success),)),
    Mutant("conflict-is-created", "store_away", "I6", ((store, "_asked", _refusal_is_there),)),
    Mutant("fence-object-collected", "store_collected", "I18", ((store, "_sweep", _fence_swept),)),
    Mutant("condition-ignored", "store_any_order", "I18", ((store, "answer", _whatever_is_there),)),
)
