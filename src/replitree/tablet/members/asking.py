"""Asking members of a blob group directly, all at once, without an admission.

Each question has a thread of its own, because a member may hang.  The asking process goes on when all members have answered; or
when enough have answered well, and the others have had `REST_S` more, or twice the time of the first ones; or when no member
has answered for its patience.  A member that has not answered by then is `Failed`: it is treated as away, and may still execute
the request later.  A member with an open question is not asked another one, so a member that hangs holds one thread, no more.

`performed` runs the procedures that ask in this way: `replitree.tablet.group.openings` and `replitree.tablet.group.replacing`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from replitree.procedures import run
from replitree.tablet.group.admission import Admit, Answer, AskRules, AskStanding, AskStreams, Question, Remember
from replitree.tablet.group.effects import Procedure
from replitree.tablet.group.member import Failed
from replitree.tablet.group.openings import AskEach
from replitree.tablet.members.group import PATIENCE_S, READ_PATIENCE
from replitree.tablet.members.member import BlobMember

T = TypeVar("T")

log = logging.getLogger(__name__)

REST_S = 1.0
"""When enough have answered well, the rest have so long in all, in seconds, or twice as long as those took."""

CLOSE_S = 1.0
"""How long questions that are on their way are waited for when everything is closed, in seconds."""

SILENT = Failed("it is silent: what it was asked may still be done")
UNANSWERED = Failed("it has not answered yet what it was asked before")


def ask(member: BlobMember, question: Question) -> Answer:
    """Ask a member for itself, not as what it was admitted."""
    match question:
        case AskStanding():
            return member.standing()
        case Admit(session, stood):
            return member.admit(session, stood)
        case Remember(seen):
            return member.remember(seen)
        case AskStreams():
            return member.streams()
        case AskRules():
            return member.rules()
        case _:
            return member.answer(question)


class _Answers:
    """The answers to some questions, as they come.

    Parameters
    ----------
    asked
        How many there are to be.
    wanted
        How many must be good before the rest are not waited for for long.
    """

    def __init__(self, asked: int, wanted: int) -> None:
        self._answers: dict[int, Answer] = {}
        self._asked, self._wanted = asked, wanted
        self._begin_s = self._last_s = time.monotonic()
        self._enough_s: float | None = None
        self._changed = threading.Condition()

    def take(self, number: int, answer: Answer) -> None:
        """Take the answer of a member."""
        with self._changed:
            self._answers[number] = answer
            self._last_s = time.monotonic()
            good = sum(not isinstance(each, Failed) for each in self._answers.values())
            if good >= self._wanted and self._enough_s is None:
                # From then on the rest have a limited time, however slowly they answer.
                self._enough_s = self._last_s
            self._changed.notify_all()

    def waited_for(self, patience_s: float) -> Mapping[int, Answer]:
        """Return the answers when it is not worth waiting any longer; `patience_s`: while too few are good."""
        with self._changed:
            while len(self._answers) < self._asked:
                # While too few are good, each answer begins the patience anew; then the others get as long again.
                end_s = self._last_s + patience_s
                if self._enough_s is not None:
                    end_s = self._begin_s + max(REST_S, 2 * (self._enough_s - self._begin_s))
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            return dict(self._answers)


class Asking:
    """Asks members directly, all at once.  It asks a single member in the calling thread: there is no other one to go on with.

    Parameters
    ----------
    patience_s
        How long a silent member is waited for, in seconds: so many times `READ_PATIENCE` while too few answer.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = READ_PATIENCE * patience_s
        self._lock = threading.Lock()
        self._asking: dict[int, threading.Thread] = {}

    def each(self, members: Sequence[BlobMember], effect: AskEach) -> tuple[Answer | None, ...]:
        """Perform the effect."""
        assert len(members) == len(effect.questions)
        asked = {number: each for number, each in enumerate(effect.questions) if each is not None}
        # In this thread: there is no other answer to go on with.
        if len(asked) == 1:
            both = zip(members, effect.questions, strict=True)
            return tuple(None if question is None else ask(member, question) for member, question in both)
        answers = _Answers(len(asked), len(asked) if effect.wanted is None else effect.wanted)
        for number, question in asked.items():
            member, take = members[number], partial(answers.take, number)
            with self._lock:
                # One open question for each member: one that hangs holds one thread, however often it is asked.
                is_asked = id(member) not in self._asking
                if is_asked:
                    work = partial(self._asked, member, question, take)
                    thread = self._asking[id(member)] = threading.Thread(target=work, name="blob-asking", daemon=True)
                    thread.start()
            if not is_asked:
                take(UNANSWERED)
        heard = answers.waited_for(self._patience_s)
        return tuple(heard.get(number, SILENT) if number in asked else None for number in range(len(members)))

    def close(self) -> None:
        """Wait until what was asked is answered; not for long: a thread whose member hangs ends when that one answers."""
        end_s = time.monotonic() + CLOSE_S
        with self._lock:
            threads = list(self._asking.values())
        for thread in threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        left = sum(thread.is_alive() for thread in threads)
        if left:
            log.warning("%d members of a blob group hang; what they were asked last may still be done", left)

    def _asked(self, member: BlobMember, question: Question, heard: Callable[[Answer], None]) -> None:
        answer: Answer
        try:
            answer = ask(member, question)
        except Exception as error:  # noqa: BLE001 - the waiting thread must be answered
            answer = Failed(f"asking it failed, which is a bug: {error!r}")
        with self._lock:
            # Before the answer is given: the caller may ask the member again at once.
            del self._asking[id(member)]
        heard(answer)


def performed(members: Sequence[BlobMember], procedure: Procedure[T], asking: Asking | None = None) -> T:
    """Run a procedure that asks members for themselves and nothing else; `asking`: what does; None: a new one."""
    asked = asking or Asking()

    def perform(effect: Any) -> Any:
        assert isinstance(effect, AskEach), f"members can't perform {effect}"
        return asked.each(members, effect)

    return run(procedure, perform)
