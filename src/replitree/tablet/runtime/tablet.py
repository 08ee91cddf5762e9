"""A tablet that is led by this process: commands, reads, and the threads behind them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, Self, TypeVar

from replitree.errors import CommandUnknown, NotLeader, ReplitreeError, Unavailable
from replitree.tablet.core import lease
from replitree.tablet.core.channels import Channels
from replitree.tablet.core.probing import Probed, StillLeads, probe
from replitree.tablet.group.effects import NotKnown, Overtaken
from replitree.tablet.group.ids import Generation
from replitree.tablet.runtime.commits import Commits, Flight, end_of
from replitree.tablet.runtime.fresh import FreshReads
from replitree.tablet.runtime.performing import Group, Groups, store_one
from replitree.tablet.runtime.settings import Settings
from replitree.tablet.runtime.upkeep import Upkeep

State = TypeVar("State")
T = TypeVar("T")

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Status:
    """How a tablet stands.

    Attributes
    ----------
    generation
        Which leader this is.
    is_leading
        Whether it does not know of a later one.
    reason
        Why it does not lead any more.
    step, confirmed
        The last step that was sent, and up to where all are committed.
    snapshot
        Generation and step of the last confirmed snapshot.
    commands
        How many commands the state has seen, since the tablet is new.
    is_mended
        Whether every member that answers has all that counts; whose last request failed does not answer.
    """

    generation: int
    is_leading: bool
    reason: str | None
    step: int
    confirmed: int
    snapshot: tuple[int, int]
    commands: int
    is_mended: bool


class Tablet(Generic[State]):
    """A state machine, durable and with one leader: this process, until it learns otherwise.  Any thread may use it.

    `replitree.tablet.open` makes one.

    Parameters
    ----------
    groups, channels
        Where it lies.
    generation
        Which leader this is.
    commits, upkeep
        What was made of what was recovered.
    settings
        How it runs.
    group
        The one group that it lies in, if the opener named it: its members are admitted again when they are back.
    """

    def __init__(
        self,
        groups: Groups,
        channels: Channels,
        generation: Generation,
        commits: Commits[State],
        upkeep: Upkeep[State],
        settings: Settings,
        group: Group | None = None,
    ) -> None:
        self.generation = generation
        self._groups = groups
        self._channels = channels
        self._commits = commits
        self._upkeep = upkeep
        self._settings = settings
        self._probe: FreshReads[Probed] = FreshReads(lambda: groups.run(probe(channels, generation)))
        self._stop = threading.Event()
        self._snapshots = threading.Lock()
        self._group = group
        works = [self._fly] * settings.limits.flights + [self._keep_up] + [self._readmit] * (group is not None)
        self._threads = [
            threading.Thread(target=self._working, args=(work,), name=f"tablet-{work.__name__}", daemon=True)
            for work in works
        ]
        for thread in self._threads:
            thread.start()

    # --- commands -------------------------------------------------------------------------------------------------------

    def submit(self, command: bytes) -> Future[bytes]:
        """Give a command; the future has the machine's answer when it is committed.

        Parameters
        ----------
        command
            For the machine's `apply`.

        Returns
        -------
        Future
            Ends with `NotLeader` when certainly nothing was done, and with `CommandUnknown` when that is not known.

        Raises
        ------
        NotLeader
            It does not lead any more; certainly nothing was done.
        Unavailable
            Too many commands wait; certainly nothing was done.
        BadInput
            The command is too large.
        """
        return self._commits.submit(command)

    def submit_together(self, commands: Sequence[bytes]) -> Future[list[bytes]]:
        """Give commands that go together: in one entry, so all of them are committed or none.

        A caller with many commands gives some at a time and waits once: this costs far less than a future for each.

        Parameters
        ----------
        commands
            For the machine's `apply`, one after the other, nothing between them; 16 MiB and 65,536 at most.  None: the future
            ends when everything that was given before is committed.

        Returns
        -------
        Future
            The machine's answers, in the same order; or an error, as of `submit`, that speaks of all of them.

        Raises
        ------
        NotLeader, Unavailable, BadInput
            As of `submit`.
        """
        return self._commits.submit_together(commands)

    def execute(self, command: bytes, timeout_s: float = TIMEOUT_S) -> bytes:
        """Give a command and wait until it is committed; return the machine's answer.

        Parameters
        ----------
        command
            For the machine's `apply`.
        timeout_s
            How long to wait, in seconds.

        Raises
        ------
        NotLeader, Unavailable, BadInput
            Certainly nothing was done.
        CommandUnknown
            It may have been carried out, or may yet be.
        """
        if timeout_s < TIMEOUT_S or threading.current_thread() is threading.main_thread():
            # A caller with a short time limit, or in the thread that Ctrl-C interrupts, stores no entry itself.
            return _waited(self.submit(command), timeout_s)
        future, flight = self._commits.submit_or_fly(command)
        if flight is not None:
            self._working(partial(self._store, flight))
        return _waited(future, timeout_s)

    # --- reads ----------------------------------------------------------------------------------------------------------

    def read(self, timeout_s: float = TIMEOUT_S) -> State:
        """Return a state with everything that was acknowledged before this call, by whichever leader.

        With a lease that holds it is answered at once.  Else an entry is sent that renews the lease; if there is none, or it is
        over by then, a quorum is asked.

        Raises
        ------
        NotLeader
            It does not lead any more.
        Unavailable
            No quorum answered; try again.
        """
        found = self._by_lease()
        if found is None and self._settings.lease_ns:
            try:
                _waited(self._commits.submit_together(()), timeout_s)
            except CommandUnknown as error:
                # If the leader ended, that is the better reason.
                with self._commits.changed:
                    self._commits.check_leading()
                raise Unavailable(f"the lease could not be renewed: {error}") from error
            found = self._by_lease()
        if found is not None:
            return found[0]
        match self._probe.read():
            case StillLeads():
                with self._commits.changed:
                    self._commits.check_leading()
                    return self._commits.state
            case Overtaken() as other:
                self._commits.end(end_of(other))
                raise NotLeader(f"a leader after generation {other.generation} has begun: ask it", other.generation)
            case NotKnown(reason):
                raise Unavailable(f"no quorum said whether this process still leads: {reason}")

    def _by_lease(self) -> tuple[State] | None:
        commits = self._commits
        with commits.changed:
            commits.check_leading()
            return (commits.state,) if lease.may_answer(commits.tenure, self._settings.clock()) else None

    # --- how it stands --------------------------------------------------------------------------------------------------

    @property
    def is_leading(self) -> bool:
        """Whether it does not know of a later leader, and no entry failed."""
        return self._commits.ended is None

    def status(self) -> Status:
        """Return how it stands."""
        commits = self._commits
        with commits.changed:
            ledger, ended = commits.ledger, commits.ended
            return Status(
                self.generation,
                ended is None,
                None if ended is None else str(ended),
                ledger.last,
                ledger.confirmed,
                (ledger.snapshot.generation, ledger.snapshot.step),
                commits.commands,
                self._upkeep.mends.is_whole(),
            )

    def snapshot(self) -> bool:
        """Make a snapshot now and collect what it replaces; return whether that was done.

        Raises
        ------
        NotLeader
            It does not lead any more.
        """
        with self._snapshots:
            return self._upkeep.snapshot()

    def mend(self) -> None:
        """Restore what members miss, in the background: a member is back."""
        self._upkeep.mends.ask()

    # --- threads --------------------------------------------------------------------------------------------------------

    def _working(self, work: Callable[[], None]) -> None:
        """Do a thread's work; if it fails there is a bug, and nothing more is acknowledged."""
        try:
            work()
        except BaseException as error:
            self._commits.end(ReplitreeError(f"a thread of the leader failed, which is a bug: {error!r}"))
            raise

    def _fly(self) -> None:
        while (flight := self._commits.next_flight()) is not None:
            self._store(flight)

    def _store(self, flight: Flight) -> None:
        ((blob, data),) = flight.blobs
        self._commits.landed(flight, store_one(self._groups, self._channels, blob, data))

    def _keep_up(self) -> None:
        settings, commits, pause_s = self._settings, self._commits, 0.0
        while not self._stop.wait(pause_s) and commits.ended is None:
            pause_s = settings.look_s
            try:
                # A mend that began before a snapshot must not restore what the snapshot's collection deletes.
                with self._snapshots:
                    self._upkeep.mend()
                self._upkeep.look(self._probe)
                is_long = commits.sent_entries >= settings.snapshot_entries
                if is_long or commits.sent_bytes >= settings.snapshot_bytes:
                    self.snapshot()
            except NotLeader:
                return
            except ReplitreeError:
                # A snapshot that failed is tried again after `look_s`.
                continue

    def _readmit(self) -> None:
        """Let members in that are back, and write what they miss; end when one that took part has lost blobs."""
        assert self._group is not None
        while not self._stop.wait(self._settings.look_s) and self._commits.ended is None:
            if self._group.forgot is not None:
                self._commits.end(Unavailable(f"{self._group.forgot}: open the group again"))
                return
            # A member that can't be let in now is asked again after `look_s`.
            with suppress(ReplitreeError):
                if self._group.readmit():
                    self.mend()

    # --- the end --------------------------------------------------------------------------------------------------------

    def close(self, timeout_s: float = TIMEOUT_S) -> None:
        """Commit what waits, give the lease up, and end; another process may lead at once.

        Parameters
        ----------
        timeout_s
            How long to wait for what is on its way, in seconds.
        """
        end = time.monotonic() + timeout_s
        self._stop.set()
        self._commits.close()
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._commits.end(Unavailable("it was closed"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _waited(future: Future[T], timeout_s: float) -> T:
    try:
        return future.result(timeout_s)
    except FutureTimeout:
        raise CommandUnknown(
            f"not committed within {timeout_s:g} s; it may be yet: read before you repeat it"
        ) from None
