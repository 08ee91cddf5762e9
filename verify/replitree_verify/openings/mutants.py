"""Broken rules of openings; each must be found by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from replitree.tablet.group import admission, openings, replacing
from replitree.tablet.group.admission import Admission, Admit, Remember, Rules, Standing, admission_of
from replitree.tablet.group.effects import Procedure
from replitree.tablet.group.member import Done, Failed
from replitree.tablet.group.openings import AskEach, Opening
from replitree_verify.engine.small_search import Mutant, mutant_of

_obstacles_of = admission.obstacles_of
_refusal, _ask_fit, _doubt = admission.refusal, openings._ask_fit, openings._doubt  # noqa: SLF001 - mutants reach into what they break


def _whatever_session(asked: Admission, incarnation: str, _session: int) -> Failed | None:
    """Answer as of any session."""
    return _refusal(asked, incarnation, asked.session)


def _any_incarnation(asked: Admission, _incarnation: str, session: int) -> Failed | None:
    """Answer as another directory, too."""
    return _refusal(asked, asked.incarnation, session)


def _whatever_was_admitted(asked: Admission, incarnation: str, session: int) -> Failed | None:
    """Answer as of an earlier session, too."""
    return _refusal(asked, incarnation, min(session, asked.session))


def _any_that_answers(standing: Standing | Failed, incarnation: str, _session: int) -> str | None:
    """Let a member take part that knows less of itself than others do."""
    if isinstance(standing, Failed):
        return standing.reason
    return None if standing.incarnation == incarnation else "it is another directory"


def _any_directories(standings: Sequence[Standing | Failed], incarnations: Sequence[str]) -> tuple[str | None, ...]:
    """Let directories take part that the group was not made with."""
    answering = zip(standings, incarnations, strict=True)
    return _obstacles_of(
        standings, [each.incarnation if isinstance(each, Standing) else own for each, own in answering]
    )


def _admit_whoever(standing: Standing, session: int, _stood: Admission | None) -> tuple[Standing, Done | Failed]:
    """Admit whoever is there now."""
    return replace(standing, session=max(standing.session, session)), Done()


def _admit_who_has_learnt_more(
    standing: Standing, session: int, stood: Admission | None
) -> tuple[Standing, Done | Failed]:
    """Admit a member that was told of another opening since it stood so."""
    lost = None if stood is None else admission.forgotten(stood, standing.incarnation, standing.session)
    return (standing, lost) if lost is not None else _admit_whoever(standing, session, stood)


def _tell_nobody(reasons: tuple[str | None, ...], questions: Sequence[Admit | Remember], wanted: int) -> Procedure[Any]:
    """Do not tell the members who takes part."""
    if isinstance(questions[0], Remember):
        return reasons
    return (yield from _ask_fit(reasons, questions, wanted))


def _let_in_as_it_is(_quorum: Any, opening: Opening, incarnations: Sequence[str]) -> Procedure[Opening]:
    """Let in whoever answers, without being made anew."""
    standings = yield AskEach((admission.AskStanding(),) * len(incarnations))
    obstacles = tuple(each.reason if isinstance(each, Failed) else None for each in standings)
    return Opening(opening.session, obstacles, tuple(admission_of(each) for each in standings))


def _no_doubt(*_: Any) -> None:
    """Believe that nobody has forgotten anything."""


def _doubt_of_later(opening: Opening, standings: Any, incarnations: Sequence[str]) -> str | None:
    """Suspect nobody when the latest session is known already."""
    return None if admission.latest_of(standings) <= opening.session else _doubt(opening, standings, incarnations)


def _told_once(_wanted: Any, others: Sequence[int], _session: int) -> Procedure[tuple[int, ...]]:
    """Do not tell the others of the second session."""
    yield from ()
    return tuple(others)


def _told_nobody(wanted: replacing.Replacement) -> Procedure[Any]:
    """Copy what the others have without a word about it."""
    standings = yield AskEach((*(admission.AskStanding(),) * len(wanted.incarnations), None))
    known = [each for each in standings if isinstance(each, Standing)]
    others = tuple(each for each in range(len(wanted.incarnations)) if each != wanted.number)
    return replacing._CopySources(known[0].session, known[0].seen, others)  # noqa: SLF001 - as above


def _nothing_copied(*_: Any) -> Procedure[dict[Any, int]]:
    """Leave the new member without blobs, and without rules."""
    yield from ()
    return {}


MUTANTS = (
    mutant_of(
        "exchange-not-noticed",
        "opening_after",
        "O2",
        "a member answers whoever was admitted at whichever session",
        (admission, "refusal", _whatever_session),
    ),
    mutant_of(
        "older-session-admitted",
        "opening_after",
        "O2",
        "an opening admits a member that knows less of itself than the others do",
        (admission, "_obstacle", _any_that_answers),
    ),
    mutant_of(
        "incarnation-not-compared",
        "opening_foreign",
        "O2",
        "another directory, which knows a later session, is admitted and asked",
        (openings, "obstacles_of", _any_directories),
        (admission, "refusal", _any_incarnation),
    ),
    mutant_of(
        "admitted-whoever-is-there",
        "opening_after",
        "O2",
        "a member is admitted although it does not stand any more as it did",
        (admission, "admitted", _admit_whoever),
    ),
    mutant_of(
        "admitted-having-learnt-more",
        "replacing_away",
        "O3",
        "a member is admitted although it was told of another opening since it stood",
        (admission, "admitted", _admit_who_has_learnt_more),
    ),
    mutant_of(
        "sessions-mixed-up",
        "replacing_away",
        "O3",
        "those who open the group take the same sessions as those who make a member anew",
        (openings, "following", lambda session: session + 1),
    ),
    mutant_of(
        "not-remembered",
        "opening_after",
        "O2",
        "nobody is told who takes part",
        (openings, "_ask_fit", _tell_nobody),
    ),
    mutant_of(
        "let-in-unmended",
        "opening_readmits",
        "O2",
        "a member that has forgotten something is let in again as it is",
        (openings, "readmit", _let_in_as_it_is),
    ),
    mutant_of(
        "reopening-not-said",
        "replacing",
        "O3",
        "a member answers whoever was admitted before the last opening",
        (admission, "refusal", _whatever_was_admitted),
    ),
    mutant_of(
        "doubt-not-minded",
        "replacing",
        "O3",
        "whoever finds that a member has forgotten something goes on",
        (openings, "_doubt", _no_doubt),
    ),
    mutant_of(
        "doubt-of-later-sessions-only",
        "replacing",
        "O3",
        "whoever knows the latest session already suspects nobody, although it asks a member as of an earlier one",
        (openings, "_doubt", _doubt_of_later),
    ),
    mutant_of(
        "told-once",
        "replacing",
        "O3",
        "the others are told of one session only",
        (replacing, "_tell_again", _told_once),
    ),
    mutant_of(
        "others-not-told",
        "replacing",
        "O3",
        "the others are not told that the old member is out",
        (replacing, "_tell_others", _told_nobody),
    ),
    mutant_of(
        "fences-not-copied",
        "replacing_fenced",
        "O4",
        "the new member lacks the fences of the old one",
        (replacing, "merged", lambda _rules, _incarnation: Rules()),
    ),
    mutant_of(
        "blobs-not-copied",
        "replacing_forgotten",
        "O3",
        "the new member lacks the blobs",
        (replacing, "_copy", _nothing_copied),
    ),
    mutant_of(
        "one-other-is-enough",
        "replacing_forgotten",
        "O3",
        "one of the others is asked, which may lack what the old member had",
        (replacing, "needed_others", lambda _quorum: 1),
    ),
)


def find_mutant(name: str) -> Mutant:
    """Return a mutant by its name."""
    return next(mutant for mutant in MUTANTS if mutant.name == name)
