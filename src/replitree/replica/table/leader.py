"""The leader's thread: it stands for leader, and while it leads it chooses merges and cleans up after them.

Nothing depends on there being one leader.  It resigns when the replica shuts down or is read-only, and does not stand when the
replica waits for the results of others (``merge = "fetch"``) or merges are paused on it.

After merges were proposed it looks again when they are pulled, `IDLE_S_MIN` later, or earlier when so many parts come in that
a partition would have more than `PARTS_MEANT` by then.  When there was nothing to do it waits longer each time, up to
`IDLE_S_MAX`.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from replitree.errors import ReplitreeError
from replitree.protocol.core.effects import Epoch
from replitree.protocol.membership.leader import Follows, Leads
from replitree.protocol.program.candidate import stand_next
from replitree.protocol.program.leader import note_results, roll
from replitree.protocol.program.stages import (
    AwaitElection,
    Elected,
    ElectionTurn,
    End,
    MemoryEffect,
    PlaceTurn,
    ReportTrouble,
    Then,
)
from replitree.protocol.propose.roll_over import is_due
from replitree.replica.insert.quorums import Quorums
from replitree.replica.kit.evidence import Evidence
from replitree.replica.parts.making import Maker
from replitree.replica.parts.merges import Merges
from replitree.replica.perform.availability import Availability
from replitree.replica.perform.context import TableContext
from replitree.replica.perform.driver import Driver

IDLE_S_MIN = 0.5
"""Time between two choices: what gathers meanwhile is merged at once, in fewer and wider merges."""

CROWDED_S = 0.1
"""The same, at the least, where more parts come in than are meant to be there."""

PARTS_MEANT = 50
"""Parts of the fullest partition at a choice, above which the next one comes earlier."""

CHOOSING_SHARE = 0.05
"""Of a core, that choosing among the parts of a large table may take."""

IDLE_S_MAX = 2.0
FOLLOW_S = 10.0
"""A follower looks this often who leads, even if no watch fires."""

PULL_S = 5.0
"""Longest wait for one's own proposals to be pulled."""

AGE_S = 10.0
"""How often the selector looks at the same parts again."""

CLEAN_S = 60.0
"""How often results are cleaned."""


class SelectorPace:
    """How often to ask the selector: soon again while parts come in, less and less often while nothing changes.

    Attributes
    ----------
    pause_s
        Seconds to wait now.
    """

    def __init__(self) -> None:
        self.pause_s = self._gather_s = IDLE_S_MIN
        self._nothing_for: object = None
        self._look_at = 0.0

    def may_rest(self, state: object, now_s: float) -> bool:
        """Say whether the selector would find nothing in a table in this state, as it did before."""
        if self._nothing_for != state or now_s >= self._look_at:
            return False
        self.pause_s = min(IDLE_S_MAX, self.pause_s * 2)
        return True

    def looked(self, state: object, began_s: float, ended_s: float, *, found: bool, parts: int) -> None:
        """Take note of what the selector found in a table in this state, and when it was asked and answered.

        Parameters
        ----------
        parts
            How many parts the fullest partition had then.
        """
        self._gather_s = min(IDLE_S_MIN, max(CROWDED_S, self._gather_s * PARTS_MEANT / max(1, parts)))
        self.pause_s = min(IDLE_S_MAX, max(self._gather_s, (ended_s - began_s) / CHOOSING_SHARE))
        self._nothing_for, self._look_at = (None, 0.0) if found else (state, began_s + AGE_S)


class Leader:
    """Leads, or waits to lead.

    Parameters
    ----------
    maker
        While merges are paused on it, the replica does not lead.
    merges
        Chooses merges and proposes them.
    quorums
        Gives up inserts whose writers are gone.
    """

    def __init__(
        self, context: TableContext, availability: Availability, maker: Maker, merges: Merges, quorums: Quorums
    ) -> None:
        self._context = context
        self._availability = availability
        self._maker = maker
        self._merges = merges
        self._quorums = quorums
        self._wake = threading.Event()
        self._path: str | None = None
        self._pace = SelectorPace()
        self._cleaned_at = time.monotonic()
        self._forgetting: Then | None = None
        self.leader: str | None = None
        self._turn_now = ElectionTurn(Epoch(0), resigns=True)
        self._driver = Driver(context.performer, self._remember)
        self._thread = threading.Thread(target=self._run, name=f"lead-{context.replica.table.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Look now who leads, and what there is to merge."""
        self._pace.pause_s = IDLE_S_MIN
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._wake.set()
        self._thread.join(timeout_s)

    @property
    def is_leading(self) -> bool:
        """Whether this replica leads, as far as it knows."""
        return self.leader == self._context.replica.name

    def _run(self) -> None:
        while not self._availability.is_stopping():
            try:
                pause = self._turn()
            except ReplitreeError as error:
                self._context.log.warning("leader", problem=str(error))
                pause = IDLE_S_MAX
            except Exception:  # noqa: BLE001 - a defect of ours: say so, and let the replica live
                self._context.log.defect("leader failed")
                pause = FOLLOW_S
            self._wake.wait(pause)
            self._wake.clear()
        self._resign()

    def _turn(self) -> float:
        """Do what there is to do, once; return the seconds to wait."""
        epoch = self._availability.active_epoch()
        if epoch is None or self._maker.is_paused or self._context.config.merge == "fetch":
            self._resign()
            return IDLE_S_MAX
        match self._stand(ElectionTurn(epoch, resigns=False)):
            case Leads():
                # Propose merges that are worth their cost, and clean now and then.
                context = self._context
                if time.monotonic() - self._cleaned_at >= CLEAN_S:
                    self._cleaned_at = time.monotonic()
                    self.clean(epoch)
                place = context.progress.place
                # The log goes on below a fresh parent when the numbers of the present one are nearly used up.
                is_full = place is not None and is_due(place.pointer.index)
                if is_full and self._upkeep(Then(roll, (context.replica,)), epoch) == End(outcome=True):
                    context.log.info("log rolled over", parent=context.replica.table.parent + 1)
                    context.pull_signal.hurry()
                self._quorums.give_up_abandoned(epoch)
                progress, now = context.progress, time.monotonic()
                state = (progress.place, progress.held)
                # Without a change the selector finds something new only because parts grow older, so it is asked now and then.
                if self._pace.may_rest(state, now):
                    return self._pace.pause_s
                parts = progress.partition_parts_max()
                choices = self._merges.choose()
                self._pace.looked(state, now, time.monotonic(), found=bool(choices), parts=parts)
                if not choices:
                    return self._pace.pause_s
                indexes = self._merges.propose(epoch, choices)
                context.metrics.merges.labels(context.replica.table.name).inc(len(indexes))
                if not indexes:
                    return IDLE_S_MAX
                context.pull_signal.hurry()
                stops = self._availability.is_stopping
                with progress.changed:
                    progress.changed.wait_for(lambda: stops() or progress.pointer > indexes[-1], PULL_S)
                return self._pace.pause_s
            case Follows(_, leader):
                self.leader = leader
                return FOLLOW_S
        return IDLE_S_MIN

    def _stand(self, turn: ElectionTurn) -> object:
        """Run one stage of the candidate; return what it found out."""
        self._turn_now = turn
        following = self._driver.run(Then(stand_next, (self._context.replica, self._path)))
        assert isinstance(following, Then), "a candidate goes on"
        self._path = following.arguments[1]
        return following.outcome

    def _remember(self, effect: MemoryEffect) -> object:
        """Perform an effect of the candidate on the process's memory."""
        match effect:
            case AwaitElection():
                # `_run` has waited before this turn.
                return self._turn_now
            case Elected(leads):
                self.leader = self._context.replica.name if leads else None
            case ReportTrouble():
                self._availability.trouble(Evidence.UNKNOWN, "it is unknown whether this replica stands for leader")
            case _:
                raise AssertionError(effect)
        return None

    def _resign(self) -> None:
        """Leave the election."""
        epoch, self.leader = self._context.performer.epoch.current, None
        if self._path is None or epoch is None:
            return
        # After an error the next turn leaves again, and the end of the session removes the node at the latest.
        with suppress(ReplitreeError):
            self._stand(ElectionTurn(epoch, resigns=True))

    def _upkeep(self, then: Then, epoch: Epoch) -> Then | End | None:
        """Run a stage of upkeep with the place that the replica has in the log; return what follows."""
        context, place = self._context, self._context.progress.place
        assert place is not None, "an active replica has a place"
        turn = PlaceTurn(epoch, place)
        return Driver(context.performer, lambda _: turn).run(then)

    def clean(self, epoch: Epoch) -> int:
        """Forget the results that left the table, once no replica can make them any more; return how many.

        What has left is noted at one call and forgotten at a later one, when every replica is past the pointer of the first.
        """
        cleaned = 0
        if self._forgetting is not None:
            forgot = self._upkeep(self._forgetting, epoch)
            if not isinstance(forgot, End):
                return 0
            cleaned = forgot.outcome
        noted = self._upkeep(Then(note_results, (self._context.replica,)), epoch)
        self._forgetting = noted if isinstance(noted, Then) else None
        return cleaned
