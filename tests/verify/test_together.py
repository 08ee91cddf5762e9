"""What is caught in the models where everything meets; why the rest can't show there, and is caught elsewhere."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from replitree.protocol.program import quorum_waiter
from replitree_verify.engine.explore import explore
from replitree_verify.models import MODELS
from replitree_verify.mutants.catalog import MUTANTS
from replitree_verify.mutants.mutant import stages_with
from replitree_verify.patches.patch import find_patch
from replitree_verify.pins import PINS
from replitree_verify.world.kernel import Stage

TOGETHER = "together_merge_faults"
"""A merge, an insert with a quorum, another one, two reads and all three faults."""

CAUGHT = {
    "settle-without-delete": ("QUORUM", 5),
    "merge-of-open-parts": ("I1", 6),
    "sequential-shows-visible": ("I8", 8),
    "read-shows-open": ("I8", 8),
    "read-once-pulled": ("I8", 11),
    "merged-part-invisible": ("I8", 23),
    "merge-awaited-unseen": ("I8", 31),
}
"""The invariant that each breaks there, and in how many steps."""

MARKS = {
    "read-once-pulled": pytest.mark.slow,
    "merged-part-invisible": pytest.mark.nightly,
    "merge-awaited-unseen": pytest.mark.nightly,
}
"""Those that are caught after more than a second, and after more than ten."""

FRESH = "together_fresh"
"""The same where the other insert comes, and is acknowledged, meanwhile; no session ends."""

CAUGHT_FRESH = {
    "end-of-log-before-commit": ("I8", 15),
    "read-without-sync": ("I8", 15),
    "read-at-own-pointer": ("I8", 15),
}
"""The same there: in `TOGETHER` clients hear of nothing that a linearizable read could lack."""

NOBODY_GIVES_UP = "nobody gives the insert up, or asks for it again"
ONE_COMPLETES = "only one replica can complete the number, in the commit that registers the part"
NOT_ASKED_FOR = (
    "nobody recovers, is dropped, cleans, loses a part, or rolls the log over; no leader of coordination is deposed"
)
TOO_EARLY = "what has happened before the model begins breaks it already"
ONE_IS_READ = "one replica is read: what it has shown it has"
ONE_LAGS = "a session begins at a server that lags only where another replica's session is behind; here one may be"

ELSEWHERE = {
    "acknowledged-from-absent-node": NOBODY_GIVES_UP,
    "fail-without-delete": NOBODY_GIVES_UP,
    "retry-answers-before-quorum": NOBODY_GIVES_UP,
    "impatient-means-failed": NOBODY_GIVES_UP,
    "failed-part-kept-by-late-fetch": NOBODY_GIVES_UP,
    "block-id-kept-after-fail": NOBODY_GIVES_UP,
    "counted-at-pull": TOO_EARLY,
    "counted-unversioned": ONE_COMPLETES,
    "reactivation-does-not-count": ONE_COMPLETES,
    "slower-one-does-not-count": ONE_COMPLETES,
    "recovery-forgets-what-is-open": NOT_ASKED_FOR,
    "open-entry-cleaned": NOT_ASKED_FOR,
    "lost-though-open": NOT_ASKED_FOR,
    "dropped-still-counted": NOT_ASKED_FOR,
    "dropped-counted-too-long": NOT_ASKED_FOR,
    "read-of-closed-parent": NOT_ASKED_FOR,
    "read-only-syncs": NOT_ASKED_FOR,
    "client-forgets": ONE_IS_READ,
    "read-across-sessions": ONE_LAGS,
}
"""Why each of the others can't show there; `Mutant.model` catches it (`test_mutants`)."""


def test_every_mutant_of_quorums_and_reads_is_caught_there_or_has_a_reason_not_to() -> None:
    of_theme = {name for name, mutant in MUTANTS.items() if mutant.model.startswith(("quorum", "read_"))}
    assert sorted(of_theme) == sorted((*CAUGHT, *CAUGHT_FRESH, *ELSEWHERE))


def assert_caught(model: str, mutant: str, invariant: str, steps: int) -> None:
    found = explore(MODELS[model], MUTANTS[mutant].stages)
    assert found.violation is not None
    assert (found.violation.partition(":")[0], len(found.trace)) == (invariant, steps)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=MARKS.get(name, ())) for name in CAUGHT],
)
def test_mutant_is_caught_where_everything_meets(name: str) -> None:
    assert_caught(TOGETHER, name, *CAUGHT[name])


@pytest.mark.parametrize("name", CAUGHT_FRESH)
def test_stale_read_is_caught_where_an_insert_is_acknowledged_meanwhile(name: str) -> None:
    assert_caught(FRESH, name, *CAUGHT_FRESH[name])


def _waiting_for_ever(*arguments: Any) -> Generator[Any, Any, None]:
    """Wait for the quorum, as `quorum_waiter.await_quorum` does first; and never go on."""
    yield next(quorum_waiter.await_quorum(*arguments))
    raise AssertionError("a thread that waits for a quorum went on")


_SAME = (
    *("counted-unversioned", "slower-one-does-not-count", "reactivation-does-not-count"),
    *("recovery-forgets-what-is-open", "open-entry-cleaned", "lost-though-open", "dropped-counted-too-long"),
)
NO_DIFFERENCE: dict[str, Stage] = {
    **stages_with(*(find_patch("quorum", name) for name in _SAME)),
    "await_quorum": _waiting_for_ever,
}
"""Those that change nothing there, all at once; and a stage that fails where those begin who give up."""


@pytest.mark.nightly
def test_what_can_not_show_makes_no_difference() -> None:
    found = explore(MODELS[TOGETHER], NO_DIFFERENCE)
    assert found.violation is None
    pin = PINS[TOGETHER]
    counted = (found.states, found.transitions, found.depth, len(found.quiet))
    assert counted == (pin.states, pin.transitions, pin.depth, pin.quiet)
