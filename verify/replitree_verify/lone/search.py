"""Every run of a model of a lone place, and what is wrong with the first that breaks an invariant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

from replitree.errors import StoreError
from replitree.tablet.group.effects import Fence
from replitree.tablet.group.ids import BlobId
from replitree.tablet.group.member import Contents, Done, Reply, Scan, Write
from replitree.tablet.members.group import AskedMember
from replitree.tablet.members.opening import AdmittedMember, OpenMembers
from replitree.tablet.members.state import DirectoryState, encode_state
from replitree.tablet.members.store import BlobStore
from replitree.tablet.members.store_state import STATE_KEY
from replitree_verify.engine.small_search import Rules, Searched, search_all
from replitree_verify.lone.model import ASKED, INCARNATION, QUORUM, Model, blob_of
from replitree_verify.lone.shelf import AtOnce, Objects, Shelf
from replitree_verify.lone.ways import Choices, Ways
from replitree_verify.patches.patch import Patch
from replitree_verify.world.faults import NO_FAULTS, Budget, Fault, budget_of, spent


def search(model: Model, mutant: Patch | None = None) -> Searched:
    """Go every way through a model, or until something is wrong; as states count the ways, as transitions the requests."""
    requests, trace = 0, list[str]()

    def run(choices: Choices) -> str:
        nonlocal requests, trace
        each = _Run(model, choices)
        each.go()
        requests += each.requests
        # Of the first way that breaks something: ways come with the fewest options that are not 0 first.
        if each.violation and not trace:
            trace = each.trace
        return each.violation

    found = search_all(Ways(model, run), Rules(lambda way: (way.result,) if way.result else ()), mutant)
    return replace(found, transitions=requests, trace=tuple(trace))


class _Process:
    """A process that opens the place, and asks it.

    Attributes
    ----------
    was_told
        Whether the place has told it something that the copy does not know.
    is_opening
        Whether it has begun to open the place, and nothing was told to it since.
    """

    def __init__(self, run: _Run, generation: int, asks: tuple[str, ...]) -> None:
        self.generation, self.was_told, self.is_opening = generation, False, False
        self._run, self._asks = run, asks

    def steps(self) -> Iterator[None]:
        """Go on until the end of a step, as often as there is one."""
        members = list[AdmittedMember]()

        def ask_here(admitted: Any) -> AskedMember:
            members.append(admitted)
            return _Unasked()  # type: ignore[return-value]  # the process asks its member itself

        self.is_opening = True
        try:
            place = BlobStore(self._run.shelf)
            place._pool = AtOnce()  # type: ignore[assignment]  # noqa: SLF001 - requests come one by one, in this thread
            OpenMembers(QUORUM, [place], [INCARNATION], ask_here, 0.0)
        except StoreError as error:
            self._run.say(f"c{self.generation} gives up: {error}")
            self.is_opening = False
            return
        self._run.say(f"c{self.generation} has opened the place")
        # The copy was made before this opening, so the place has told the process a session that the copy does not know.
        if self._run.is_copy_behind and not self._run.is_swapped:
            self.was_told = True
        for number, name in enumerate(self._asks):
            # Opening the place and the first request are one step: most orders between them lead to the same.
            if number:
                yield
            request = ASKED[name](self.generation)
            self._run.heard(self, name, request, members[0].answer(request))
        yield


class _Unasked:
    """Stands where a group has what sends requests to a member: here a process asks its member itself."""


class _Run:
    """One run of a model."""

    def __init__(self, model: Model, choices: Choices) -> None:
        self.violation, self.requests, self.trace = "", 0, list[str]()
        self.is_swapped, self.is_copy_behind = False, bool(model.openings)
        self.shelf = Shelf(self._before, self._loses)
        self._model, self._choices = model, choices
        self._left = NO_FAULTS
        self._processes: tuple[_Process, ...] = ()
        self._others: Iterator[None] = iter(())
        self._has_more = self._has_begun = False
        self._forgot = set[int]()
        self._acked, self._found = set[int](), dict[int, frozenset[BlobId]]()
        # A process has opened the place, fenced, and stored a blob.  The copy is of before that, or of before the last opening.
        self.shelf.objects[STATE_KEY] = "0", encode_state(DirectoryState("g", 0, INCARNATION, 0, (0,)))
        states = list[Objects]()
        for _ in range(self._model.openings):
            next(_Process(self, 1, ("fence",)).steps())
            states.append(dict(self.shelf.objects))
        steps = _Process(self, 1, ("fence", "store")).steps()
        next(steps)
        states.append(dict(self.shelf.objects))
        next(steps)
        self._copy = states[0]

    def go(self) -> None:
        """Let the main process do all that it wants; then the other one does the rest."""
        self.requests, self.trace = 0, []  # what has led to the beginning is no part of the way
        self._left = budget_of(self._model.faults)
        main, other = _Process(self, *self._model.main), _Process(self, *self._model.other)
        self._processes = (main, other)
        self._others, self._has_more = other.steps(), bool(self._model.other[1])
        for _ in main.steps():
            pass
        while self._may_let_other():
            self._let_other()

    def say(self, text: str) -> None:
        """Take what happens, for people."""
        self.trace.append(text)

    # --- what happens ---------------------------------------------------------------------------------------------------

    def _before(self, request: str) -> None:
        """Let other things happen before a request."""
        self.requests += 1
        taken = 1
        while taken:  # several things may happen before one request; the choice 0 ends them
            # One process opens the place while the other one was told something: a copy just then is a limit of a lone place.
            may_swap = self._left & Fault.SWAP.mask and (
                self._model.is_limit
                or not any(one.is_opening and another.was_told for one, another in permutations(self._processes, 2))
            )
            options = [*(["swap"] if may_swap else []), *(["other"] if self._may_let_other() else [])]
            # Where there is no option nothing is chosen: a choice of one would make no other way.
            taken = self._choices.choose(len(options) + 1) if options else 0
            if taken and options[taken - 1] == "swap":
                self._left = Budget(self._left - Fault.SWAP.cost)
                self.is_swapped = True
                # Only these are owed a refusal: a process that the place has told nothing yet has nothing to be forgotten.
                self._forgot = {each.generation for each in self._processes if each.was_told}
                self.shelf.objects = dict(self._copy)
                self.say("a copy takes the place of the place")
            elif taken:
                self._let_other()
        self.say(request)

    def _may_let_other(self) -> bool:
        """Whether the other one goes on.  A copy that a process opens was opened as often as the place: that is a limit."""
        return self._has_more and (self._model.is_limit or self._has_begun or not self.is_swapped)

    def _let_other(self) -> None:
        """Let the other process do a step, between two requests of the main one."""
        # First: its requests come back to `_before`, where it must not be chosen again while it runs.
        self._has_more, self._has_begun = False, True
        self._has_more = next(self._others, self) is not self

    def _loses(self) -> bool:
        left = spent(self._left, Fault.STORE)
        if left is None or not self._choices.choose(2):
            return False
        self._left = left
        self.say("its answer gets lost")
        return True

    # --- what must hold ---------------------------------------------------------------------------------------------------

    def heard(self, process: _Process, name: str, request: Any, reply: Reply) -> None:
        """Take what a process was answered."""
        self.say(f"c{process.generation} hears to {name}: {reply}")
        if not isinstance(reply, Done | Contents):
            return
        process.is_opening = False
        is_read = isinstance(request, Scan) and request.fence is not None
        if process.generation in self._forgot and not is_read:  # such a read counts when what is stored next is
            self._broken(f"O2: c{process.generation} is answered by a place that has forgotten what it had told it")
        if self.is_swapped:
            return  # O1 asks nothing more: a later process can't know what a lone place has forgotten
        process.was_told, generation = True, process.generation
        if isinstance(reply, Contents) and isinstance(request, Scan) and isinstance(request.fence, Fence):
            found = self._found[generation] = frozenset(blob for blob, _ in reply.blobs)
            for each in self._acked:
                if each < generation and blob_of(each) not in found:
                    self._broken(f"O1: c{generation} has not found what was acknowledged to c{each}")
        if isinstance(request, Write):
            self._acked.add(generation)
            for later, found in self._found.items():
                if later > generation and blob_of(generation) not in found:
                    self._broken(f"O1: c{generation} acknowledges what c{later} has not found")

    def _broken(self, what: str) -> None:
        self.violation = self.violation or what
