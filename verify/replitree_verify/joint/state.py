"""A state of a model of joint inserts, and what it consists of."""

from __future__ import annotations

from typing import NamedTuple

from replitree.coordination.tree import Tree
from replitree.protocol.core import effects as fx
from replitree.protocol.program.sharded.coordinator import CoordinatorOutcome
from replitree.protocol.sharded.prepare import Participant
from replitree_verify.joint import stored
from replitree_verify.world.faults import Budget
from replitree_verify.world.kernel import END


class At(NamedTuple):
    """Whose thread it is: that of an insert by its number, of a seat that starts, or a duty; `thread` is one of an insert's."""

    kind: str
    number: int
    thread: int = 0


class JointProcess(NamedTuple):
    """A process of a seat.

    Attributes
    ----------
    number
        How many there were before it.
    epoch
        Its epoch; None while it has none.
    held
        The staging ids whose folders its own activations do not sweep.
    listed
        What an activation has listed, to sweep; None: none is under way.
    start
        Where the sweep of its activation stands.
    """

    number: int = 0
    epoch: int | None = 0
    held: frozenset[str] = frozenset()
    listed: frozenset[str] | None = None
    start: int = END


class Sent(NamedTuple):
    """An insert of a client.

    Attributes
    ----------
    map_version
        Of the map by which its rows were split.
    prepared
        What the participant has prepared at each attempt.
    refused
        Joint inserts of which the client has heard, or knows without asking, that they did not take place.
    told
        What it has heard last.
    threads
        Where its threads stand.
    own
        What the coordinator's process holds of it.
    lost
        Under which id the coordinator had staged its rows when it died; the client asks it again.
    is_early
        Whether the client was told that its insert counts before its quorum was reached.
    """

    map_version: int = 0
    prepared: tuple[Participant, ...] = ()
    refused: tuple[fx.JointId, ...] = ()
    told: CoordinatorOutcome | None = None
    threads: tuple[int, ...] = ()
    own: Participant | None = None
    lost: fx.StagingId | None = None
    is_early: bool = False


class JointState(NamedTuple):
    """A state: `folders` are (seat, staging id) of what is staged, `late` the commits on their way; others as of the model.

    `duties`: where those who count themselves, give up and clean stand; `judged`: (duty, token, staging id)
    of the tokens that a cleaner has found too old, by the entry that they name first.  `before`: how many inserts the first
    shard had when the stream was forgotten last.
    """

    tree: Tree
    processes: tuple[JointProcess, ...]
    sent: tuple[Sent, ...]
    duties: tuple[int, ...]
    folders: frozenset[tuple[str, str]]
    late: tuple[tuple[fx.Operation, ...], ...]
    budget: Budget
    maps: int
    retakes: tuple[str, ...]
    forgotten: bool = False
    judged: frozenset[tuple[int, str, str]] = frozenset()
    objects: stored.Objects = stored.Objects()
    before: int = 0

    @property
    def key(self) -> JointState:
        """What tells it apart."""
        return self
