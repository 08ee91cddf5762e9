"""Mutants of a group on an object store, and of the store itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from replitree.tablet.group import member, store
from replitree.tablet.group.effects import Procedure
from replitree.tablet.group.member import Done, Failed, Holdings, Raise, Reply, Request, Scan, Sweep
from replitree.tablet.group.quorum import end_of
from replitree_verify.tablets.mutants.mutant import Mutant

NOTHING = Holdings()
_serve = store.serve
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
    if isinstance(request, store.CreateBlobs):
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


def _listed_before_the_fence(
    request: Request, known: Holdings = NOTHING, *, is_alone: bool = False
) -> Procedure[Reply]:
    """Let a listing that was made before the fence was raised stand for one that was made after."""
    if isinstance(request, Raise):
        return Done()  # what is read raises it
    serving, outcome, listed = _serve(request, known, is_alone=is_alone), None, None
    if isinstance(request, Scan) and request.fence is not None:
        listed = yield store.List(request.first, end_of(request.first))
    while True:
        try:
            asked = serving.send(outcome)
        except StopIteration as stop:
            reply: Reply = stop.value
            return reply
        outcome = listed if listed is not None and isinstance(asked, store.List) else (yield asked)


STORE_MUTANTS = (
    Mutant("fence-not-looked-at", "store_take_over", "I3", ((store, "_refusal", lambda *_: None),)),
    Mutant("silence-is-success", "store_away", "I3", ((store, "_change", _silence_is_success),)),
    Mutant("conflict-is-created", "store_away", "I6", ((store, "_asked", _refusal_is_there),)),
    Mutant("fence-object-collected", "store_collected", "I18", ((store, "_sweep", _fence_swept),)),
    Mutant("listed-before-the-fence", "store_take_over", "I3", ((store, "serve", _listed_before_the_fence),)),
    Mutant("condition-ignored", "store_any_order", "I18", ((store, "answer", _whatever_is_there),)),
)
