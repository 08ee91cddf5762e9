"""Broken rules of a lone place; each must be found by name."""

from __future__ import annotations

from dataclasses import replace

from replitree.tablet.group import admission, openings, store
from replitree.tablet.group.admission import Admission, Standing
from replitree.tablet.group.member import Done, Failed
from replitree.tablet.members.store_state import StoredState
from replitree_verify.engine.small_search import mutant_of


def _nothing_paid(_: StoredState) -> Done:
    """Answer before the opening is remembered."""
    return Done()


def _admit_whoever(standing: Standing, session: int, _stood: Admission | None) -> tuple[Standing, Done | Failed]:
    """Take part in an opening whatever was there when it began."""
    return replace(standing, session=max(standing.session, session)), Done()


MUTANTS = (
    mutant_of(
        "answered-before-it-is-remembered",
        "lone_swapped",
        "O2",
        "what is asked first is answered before the place remembers that it was opened",
        (StoredState, "pay", _nothing_paid),  # type: ignore[arg-type]  # a class has names as a module has
    ),
    mutant_of(
        "owed-by-whoever-is-there",
        "lone_copied_earlier",
        "O2",
        "an opening is remembered by whatever is there, if it stood so or not",
        (admission, "admitted", _admit_whoever),
    ),
    mutant_of(
        "own-admission-not-minded",
        "lone_both_swapped",
        "O2",
        "whoever looks again takes a place as it stands, although it knew more when it was admitted",
        (openings, "_sunk", lambda *_: None),
    ),
    mutant_of(
        "fence-not-looked-at",
        "lone",
        "O1",
        "the fence is not looked at when a blob was stored",
        (store, "_refusal", lambda *_: None),
    ),
)
