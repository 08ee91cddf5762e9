"""Mutants of a group on an object store, and of the store itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replitree.tablet import store
from replitree.tablet.effects import Procedure
from replitree.tablet.member import Failed, Holdings, Reply
from replitree.verify.tablets.mutant import Mutant

_answer = store.answer


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


STORE_MUTANTS = (
    Mutant("fence-not-looked-at", "store_take_over", "I3", ((store, "_refusal", lambda *_: None),)),
    Mutant("silence-is-success", "store_away", "I3", ((store, "_change", _silence_is_success),)),
    Mutant("condition-ignored", "store_any_order", "I18", ((store, "answer", _whatever_is_there),)),
)
