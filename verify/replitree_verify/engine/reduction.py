"""Partial-order reduction: steps that need no interleaving are taken at once, together with the step before them.

A step may be joined to the one before when taking it *early* loses nothing, that is: for everything that could have happened
first there is an execution in the reduced space that breaks the same invariants.  Three kinds of steps:

* **No procedure decides by it** (`Answer`, `Release`, `ShowRows`).  Nothing that a procedure reads is changed by `Answer`; it
  can only add to what the invariants demand or forbid (what was acknowledged must be there), and no invariant is mended by an
  answer.  So a broken state stays broken when it came earlier, and every state of the full space is there with more demands.
  A crash before an `Answer` is covered by the crash after it: the client knows more, the replica does not.  `Release` lets a
  later `ListStaging` see a folder that its procedure has finished with; the last step that used the folder came before, and a
  list taken before that step is still explored.  (`Reveal` is not of this kind: executors go by what is revealed.)  `ShowRows`
  follows the look at what it shows: the running replica keeps these files.  (A read of a model waits for answers, and what was
  answered when it begins is what it must show: an earlier answer lets it begin earlier, and demands more.)
* **Own business while alone**.  As long as a process is `STARTING` its life thread is the only thread that runs: the
  others wait for it to be active.  If the replica has one seat and no request is in flight, then no other process reads or
  writes the process's memory, its disk, and the nodes `queue`, `parts`, `log_pointer` of its replica (others read `parts`
  only, and only the steps taken here are reads).  Reads of them, and reads and writes of the memory, commute with every
  step of others, and a crash before such a step leads to the same state as the crash after it, since they leave nothing
  durable behind.
* **Sync with a view that does not lag** changes nothing but the place of the procedure.
* **Reads of what stays as it is**: `is_lost` and the log's parent, in a model in which the log is not cleaned.

`Accept` is joined with the `Stage` that follows: between them nothing durable has happened, an epoch that changes
meanwhile can as well change between `Stage` and the commit, and a crash meanwhile is the crash before.

`FindPart` is joined with whatever comes before: it reads one part of the process's own disk and leaves nothing behind.  No
other thread touches that part while the entry runs: the life thread spares what the queue will bring, and an executor that
fetches it in the place of an older one takes something from the sources, so that one of the two commits is refused.

Of a table in an object store, a process also asks its own disk about a part that it registers or has let go of (`SharesOf`,
`HasPart`, `NameShares`, `SharesSettled`).  These are joined in the same way: an answer that is old by the time of the commit is
the one that could do harm, and a newer answer is that of the step before when that step comes later.  What a mover remembers of
its moves (`NameMove`, `MoveEnded`) is read by no other thread before their share is noted.  It hears where parts belong
(`HearPlaces`) when it begins to move one: before, this changes nothing.

No cycle consists of such steps alone (`CHAIN_MAX` asserts it), so nothing is put off for ever.  A step that could be
closed by a fault (`Fault.CLOSED` in the model) is not joined.  ``tests/verify`` compares verdicts, and the quiet states that
are reached, with the reduction switched off.
"""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.program.stages import Accept, AwaitMove
from replitree_verify.effects.table import ROWS
from replitree_verify.outcomes.branch import Branch, Scene
from replitree_verify.process.moves import HearPlaces
from replitree_verify.world.faults import Fault
from replitree_verify.world.memory import State

CHAIN_MAX = 200
"""Steps joined at most; more would mean that a procedure runs in a circle without asking for anything."""

_JOINS = {row.effect: row.joins for row in ROWS}


def is_joined(effect: Any, before: Any, branch: Branch, scene: Scene, *, alone: bool) -> bool:
    """Whether the step `effect` is taken at once after the step `before` ended with `branch`.

    Parameters
    ----------
    effect, before, branch
        The step in question, the step before it, and how that ended.
    scene
        The process before `effect`.
    alone
        Whether the process was alone when the first of these steps began: it is `STARTING`, its replica has no other seat, and
        no request is in flight.
    """
    # A request in flight may be applied between the two steps, and a breach is reported at the step that makes it.
    if branch.doubtful or branch.sent is not None or branch.breach is not None:
        return False
    if isinstance(before, Accept):
        return isinstance(effect, fx.Stage)
    if isinstance(before, HearPlaces):
        return isinstance(effect, AwaitMove)
    joins = _JOINS[type(effect)]
    if joins == "always":
        return True
    replica, closed = scene.here.replica, Fault.CLOSED in scene.faults
    if isinstance(effect, fx.Sync):
        return scene.view is None and not closed
    staying = (layout.is_lost(replica), layout.log(replica.table))
    if scene.still and not closed and isinstance(effect, fx.Get) and effect.path in staying:
        return True
    if not alone or scene.here.memory.state is not State.STARTING:
        return False
    if joins == "alone":
        return True
    # A view that lags could show the process's own nodes as they were before its last commit: then reads do not commute.
    if not scene.alone or scene.view is not None or closed:
        return False
    paths: tuple[str, ...]
    match effect:
        case fx.Get(path) | fx.Exists(path) | fx.Children(path):
            paths = (path,)
        case fx.GetMany(paths, watch):
            paths = paths if watch is None else (*paths, watch)
        case _:
            return False
    own = (layout.queue(replica), layout.parts(replica), layout.log_pointer(replica))
    return all(path.startswith(own) for path in paths)
