"""The commits of a running leader: the commands that wait, that are sent, that are committed, and the state that results.

Commands that wait are sent as one entry (`pace`), several entries at once; commands that a client gave together stay together.
When an entry is committed its commands are applied, in the order of the log, and their clients are answered.  The first entry
that may not be stored ends the leader:

* commands that were not sent: `NotLeader`, because certainly nothing was done
* commands of this entry and of later ones: `CommandUnknown`; earlier ones may still be committed
* every later command: `NotLeader`

While too many bytes are sent and not stored (`commit.Ledger.has_room`), or a snapshot is too far behind (`SINCE_BYTES_MAX`), no
entry is sent, and the number of waiting commands is limited (`pace.Limits`).

One lock covers everything except the storing and the answering.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from replitree.errors import BadInput, CommandUnknown, NotLeader, ReplitreeError, Unavailable
from replitree.tablet.core import commit, lease, pace
from replitree.tablet.core.bodies import encode_commands
from replitree.tablet.core.commit import BEGIN, Draft, Ledger
from replitree.tablet.core.lease import Tenure
from replitree.tablet.core.machine import Machine, machine_failed
from replitree.tablet.core.snapshots import bytes_of
from replitree.tablet.group.effects import NotKnown, Overtaken, Stored
from replitree.tablet.group.ids import STEP_MAX, BlobId, GenStep, Step
from replitree.tablet.runtime.answers import Answers, CommandAnswer, Telling, WaitingCommands, tell
from replitree.tablet.runtime.settings import Settings

State = TypeVar("State")

COMMAND_BYTES_MAX = 16 << 20
"""Bytes of a command, and of all commands that go together."""

TOGETHER_MAX = 65_536
"""Commands that may go together."""

SINCE_BYTES_MAX = 64 << 20
"""When so many bytes of commands were sent since a snapshot was begun, and it has not stored them, commands wait."""


class Flight(msgspec.Struct, frozen=True):
    """An entry on its way.

    Attributes
    ----------
    step
        Which.
    blobs
        What is to be stored, all at once.
    waiting
        Its commands, and the futures of their clients.
    sent_ns
        When it was sent.
    """

    step: Step
    blobs: tuple[tuple[BlobId, bytes], ...]
    waiting: tuple[WaitingCommands, ...]
    sent_ns: int


class Commits(Generic[State]):
    """The commits of one leader.

    Parameters
    ----------
    machine
        What applies commands.
    ledger
        Of the leader, with nothing in it.
    state, commands
        What was recovered: the state, and how many commands it has seen.
    settings
        Limits, lease and clock.

    Attributes
    ----------
    changed
        The lock; told whenever something has landed or ended.
    ledger, state, commands, tenure
        How things stand.
    sent_entries, sent_bytes
        What was sent since the last snapshot.
    ended
        Why it does not lead any more; None while it does.
    """

    def __init__(
        self, machine: Machine[State], ledger: Ledger, state: State, commands: int, settings: Settings
    ) -> None:
        self._lock = threading.RLock()
        # Two conditions on one lock: a command wakes a thread that sends, and none of those that wait for an entry to land.
        self.changed, self._sends = threading.Condition(self._lock), threading.Condition(self._lock)
        self.ledger = ledger
        self.state = state
        self.commands = commands
        self.tenure = Tenure(settings.lease_ns)
        self.sent_entries = self.sent_bytes = 0
        self.ended: ReplitreeError | None = None
        self._machine = machine
        self._settings = settings
        self._pace = pace.Pace()
        self._queue: deque[WaitingCommands] = deque()
        self._turn: threading.Condition | None = None
        self._alone = threading.Condition()
        self._queue_commands = self._queue_bytes = 0
        self._flights: dict[Step, Flight] = {}
        self._sent_ns: dict[Step, int] = {}
        self._last_command = Step(0)
        self._since: list[bytes] | None = None
        self._since_bytes = 0
        self._is_closing = self._is_broken = False

    # --- taking commands ------------------------------------------------------------------------------------------------

    def submit(self, command: bytes) -> CommandAnswer:
        """Let a command wait to be sent.

        Raises
        ------
        NotLeader
            Not any more; certainly nothing was done.
        Unavailable
            Too much waits already; certainly nothing was done.
        BadInput
            It is too large.
        """
        with self._lock:
            answer = CommandAnswer(self._next_turn())
            self._wake(self._queued((command,), len(command), answer))
        return answer

    def submit_together(self, commands: Sequence[bytes]) -> Answers:
        """Let commands wait to be sent in one entry: all are committed, or none; none at all: what comes before is.

        Raises
        ------
        NotLeader, Unavailable, BadInput
            As of `submit`.
        """
        if len(commands) > TOGETHER_MAX:
            raise BadInput(f"{len(commands):,} commands together; {TOGETHER_MAX:,} are allowed")
        given, size = tuple(commands), sum(map(len, commands))
        with self._lock:
            answers = Answers(self._next_turn())
            self._wake(self._queued(given, size, answers))
        return answers

    def submit_or_fly(self, command: bytes) -> tuple[CommandAnswer, Flight | None]:
        """Like `submit`; where nothing is on its way or waits, the caller gets the entry, stores it, and says how it landed."""
        with self._lock:
            # Only where nothing waits: otherwise the command would overtake those before it.
            if self._queue or self._pace.flying or not self._has_room:
                return self.submit(command), None
            self._check(len(command))
            answer = CommandAnswer(self._alone)
            return answer, self._send(
                (WaitingCommands((command,), len(command), answer),), (command,), self._settings.clock()
            )

    def _next_turn(self) -> threading.Condition:
        """Return the condition that the clients of the next entry share."""
        if self._turn is None:
            self._turn = threading.Condition()
        return self._turn

    def _check(self, size: int) -> None:
        if size > COMMAND_BYTES_MAX:
            raise BadInput(
                f"a command of {size:,} bytes; {COMMAND_BYTES_MAX:,} are allowed, also for all that go together"
            )
        self.check_leading()

    def _queued(self, commands: Sequence[bytes], size: int, answer: CommandAnswer | Answers) -> WaitingCommands:
        limits = self._settings.limits
        self._check(size)
        if self._queue_commands >= limits.waiting_commands or self._queue_bytes >= limits.waiting_bytes:
            raise Unavailable(f"{self._queue_commands:,} commands wait already; try again later")
        waiting = WaitingCommands(commands, size, answer)
        self._queue.append(waiting)
        self._queue_commands += waiting.weight
        self._queue_bytes += size
        return waiting

    def _wake(self, last: WaitingCommands) -> None:
        """Wake a thread to send the waiting commands, of which this is the last, unless one is awake."""
        limits = self._settings.limits
        is_large = self._queue_bytes >= limits.batch_bytes > self._queue_bytes - last.bytes
        is_many = self._queue_commands >= limits.batch_commands > self._queue_commands - last.weight
        # A command in between wakes none: the thread that waits for the entry to fill knows when to send it.
        if is_large or is_many or len(self._queue) == 1:
            self._sends.notify()

    def check_leading(self) -> None:
        """Do nothing while it leads.

        Raises
        ------
        NotLeader
            It does not any more.
        """
        if self.ended is not None:
            raise NotLeader(f"this process does not lead the tablet any more: {self.ended}", _generation(self.ended))
        if self._is_closing:
            raise NotLeader("this process is closing the tablet: ask the next leader")

    # --- sending --------------------------------------------------------------------------------------------------------

    def next_flight(self) -> Flight | None:
        """Wait until something is to be sent, and return it; None when nothing is going to be."""
        with self.changed:
            while self.ended is None and not (self._is_closing and not self._queue):
                now, limits = self._settings.clock(), self._settings.limits
                # Without room there is no time limit: an entry that was stored wakes this thread.
                patience: int | None = None
                if self._has_room:
                    patience = pace.patience_ns(self._pace, limits, self._queue_commands, self._queue_bytes, now)
                if patience == 0:
                    # The next entry has what the callers that wait have sent, up to its limits.
                    batch, commands, size = list[WaitingCommands](), list[bytes](), 0
                    while self._queue and len(commands) < limits.batch_commands and size < limits.batch_bytes:
                        waiting = self._queue.popleft()
                        batch.append(waiting)
                        commands += waiting.commands
                        size += waiting.bytes
                        self._queue_commands -= waiting.weight
                    self._queue_bytes -= size
                    # Clients that come from now on wait for another entry.
                    self._turn = None
                    # What is left need not wait for this thread, which stores its entry first.
                    if self._queue:
                        self._sends.notify()
                    return self._send(batch, commands, now)
                self._sends.wait(None if patience is None else patience / 1e9)
            return None

    @property
    def _has_room(self) -> bool:
        return self.ledger.has_room and self._since_bytes < SINCE_BYTES_MAX

    def _send(self, batch: Sequence[WaitingCommands], commands: Sequence[bytes], now: int) -> Flight:
        # On the last commands and on the last step: a snapshot in between must not hide a hole before it.
        before = {self._last_command, self.ledger.last} - {BEGIN}
        draft = Draft(
            encode_commands(commands) if commands else b"",
            depends_on=tuple(sorted(before)),
            metadata=lease.metadata(self.tenure),
        )
        self._last_command = Step(self.ledger.last + 1)
        if self._since is not None:
            self._note(commands)
        self._pace = pace.sent(self._pace, now)
        return self._form(draft, tuple(batch), now)

    def _form(self, draft: Draft, waiting: tuple[WaitingCommands, ...], now: int) -> Flight:
        before = self.ledger.flying_bytes
        self.ledger, blobs = commit.form(self.ledger, draft)
        flight = Flight(self.ledger.last, blobs, waiting, now)
        self._flights[flight.step] = flight
        self._sent_ns[flight.step] = now
        self.sent_entries += 1
        self.sent_bytes += self.ledger.flying_bytes - before
        # No step is used twice: the leader ends, and the next generation begins with step 0.
        if flight.step == STEP_MAX:
            self.ended = self.ended or Unavailable(
                "all steps of this generation are used up: stand again for the next one"
            )
            self._sends.notify_all()
        return flight

    # --- landing --------------------------------------------------------------------------------------------------------

    def landed(self, flight: Flight, outcome: Stored | Overtaken | NotKnown) -> None:
        """Take what became of an entry."""
        with self._lock:
            self._pace = pace.landed(self._pace, self._settings.clock() - flight.sent_ns)
            told = self._taken(flight.blobs[0][0], outcome)
        tell(told)

    def taken(self, blob: BlobId, outcome: Stored | Overtaken | NotKnown) -> None:
        """Take what became of a blob of a snapshot."""
        with self.changed:
            told = self._taken(blob, outcome)
        tell(told)

    def _taken(self, blob: BlobId, outcome: Stored | Overtaken | NotKnown) -> list[Telling]:
        had_room = self._has_room
        if isinstance(outcome, Stored):
            before = self.ledger
            self.ledger, steps = commit.stored(before, blob)
            for number in range(before.confirmed + 1, self.ledger.confirmed + 1):
                # Only for what is confirmed: the successor must find the entry that carries the lease.
                self.tenure = lease.extended(self.tenure, self._sent_ns.pop(Step(number)))
            told = [self._apply(waiting) for step in steps for waiting in self._flights.pop(step).waiting]
            if self.ended is not None:
                told += self._end(self.ended)
        else:
            told = self._failed(blob.step, outcome)
        # The thread that sends waits without a time limit while there is no room.
        if not had_room:
            self._sends.notify()
        self.changed.notify_all()
        return told

    def _apply(self, waiting: WaitingCommands) -> Telling:
        answers: list[bytes] = []
        if not self._is_broken:
            state, apply = self.state, self._machine.apply
            try:
                for command in waiting.commands:
                    state, answer = apply(state, command)
                    answers.append(answer)
            except Exception as error:  # noqa: BLE001 - the clients must be answered; there is no state to go on with
                self._is_broken, failed = True, self.commands + len(answers)
                self.ended = machine_failed(f"command {failed}", error)
            self.state = state
            self.commands += len(answers)
        if len(answers) == len(waiting.commands):
            return waiting.future, answers
        return waiting.future, CommandUnknown(f"the command is in the log, and {self.ended}")

    def _failed(self, step: Step, outcome: Stored | Overtaken | NotKnown) -> list[Telling]:
        self.ledger = commit.failed(self.ledger, step)
        told = self._end(end_of(outcome))
        assert self.ledger.failed_at is not None
        for number in [each for each in self._flights if each >= self.ledger.failed_at]:
            for waiting in self._flights.pop(number).waiting:
                error = CommandUnknown(
                    f"the command may have been carried out: {self.ended}; read before you repeat it"
                )
                told.append((waiting.future, error))
        return told

    def failed(self, step: Step, outcome: Overtaken | NotKnown) -> None:
        """Take that something of a step may not be stored."""
        with self.changed:
            told = self._failed(step, outcome)
            self.changed.notify_all()
        tell(told)

    def end(self, reason: ReplitreeError) -> None:
        """Send nothing more; what is on its way may still be committed."""
        with self.changed:
            told = self._end(reason)
            self.changed.notify_all()
        tell(told)

    def _end(self, reason: ReplitreeError) -> list[Telling]:
        self.ended = self.ended or reason
        # A leader that ended answers no read by its lease.
        self.tenure = lease.released(self.tenure)
        queue, self._queue, self._queue_commands, self._queue_bytes = self._queue, deque(), 0, 0
        error = NotLeader(f"certainly not done: {self.ended}", _generation(self.ended))
        self._sends.notify_all()
        return [(waiting.future, error) for waiting in queue]

    # --- snapshots ------------------------------------------------------------------------------------------------------

    def begin_snapshot(self) -> tuple[State, int, Ledger]:
        """Return the state, how many commands it has seen, and the ledger; from now on what comes after is written down.

        The caller must call `end_snapshot` in the end, also after an error.
        """
        with self.changed:
            self.check_leading()
            self._since = []
            for step in sorted(self._flights):
                for waiting in self._flights[step].waiting:
                    self._note(waiting.commands)
            return self.state, self.commands, self.ledger

    def _note(self, commands: Sequence[bytes]) -> None:
        assert self._since is not None
        self._since += commands
        self._since_bytes += bytes_of(commands)

    def take_since(self, bytes_min: int) -> list[bytes]:
        """Return the commands that were written down, if they have so many bytes, else none; the caller stores them."""
        with self.changed:
            return self._take_since() if self._since_bytes >= bytes_min else []

    def _take_since(self) -> list[bytes]:
        taken, self._since_bytes = self._since or [], 0
        self._since = []
        self._sends.notify()
        return taken

    def send_snapshot(self, draft: Callable[[Ledger, list[bytes]], Draft]) -> tuple[Flight, Draft]:
        """Send the snapshot as soon as there is room; it may be stored before what was sent earlier."""
        with self.changed:
            while not self.ledger.has_room:
                self.check_leading()
                self.changed.wait()
            self.check_leading()
            made = draft(self.ledger, self._take_since())
            self._since = None
            self.sent_entries = self.sent_bytes = 0
            terms = (*made.metadata, *lease.metadata(self.tenure))
            return self._form(msgspec.structs.replace(made, metadata=terms), (), self._settings.clock()), made

    def end_snapshot(self) -> None:
        """Write nothing down any more: the snapshot was sent, or is not going to be."""
        with self.changed:
            self._take_since()
            self._since = None

    def synced(self, blob: BlobId, snapshot: GenStep) -> None:
        """Take that a sync entry is stored, which names a snapshot."""
        with self.changed:
            self.ledger = commit.synced(self.ledger, blob, snapshot)
            self.changed.notify_all()

    # --- the end --------------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether it ended or is being closed."""
        return self.ended is not None or self._is_closing

    def close(self) -> None:
        """Take no more commands; those that wait are still sent.  A lease is given up, which the last entry says."""
        with self.changed:
            if self.tenure.duration_ns and self.ended is None and not self._is_closing:
                self.tenure = lease.released(self.tenure)
                self._queue.append(WaitingCommands((), 0, CommandAnswer(self._next_turn())))
                self._queue_commands += 1
            self._is_closing = True
            self._sends.notify_all()


def end_of(outcome: Stored | Overtaken | NotKnown) -> ReplitreeError:
    """Return why a leader ends whose blob was not stored for sure."""
    if isinstance(outcome, Overtaken):
        return NotLeader(f"a leader after generation {outcome.generation} has begun", outcome.generation)
    reason = outcome.reason if isinstance(outcome, NotKnown) else str(outcome)
    return Unavailable(f"it is not known whether an entry was stored: {reason}")


def _generation(error: ReplitreeError) -> int | None:
    return error.generation if isinstance(error, NotLeader) else None
