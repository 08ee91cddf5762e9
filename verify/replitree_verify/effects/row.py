"""The columns of the table of effects.  No column has a default: one that has nothing to say of an effect says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

from replitree.protocol.core.layout import Replica
from replitree_verify.effects.numbers import Numbers
from replitree_verify.outcomes.branch import Branch, Scene
from replitree_verify.outcomes.local import Done, Here
from replitree_verify.probes.catalog import Seen

# --- reads and writes -------------------------------------------------------------------------------------------------

Paths: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""Nodes and folders of coordination."""


Sight: TypeAlias = Literal["seen", "on disk", "unseen"]
"""What invariants see of what an effect changes (`engine.ample`).

`on disk`: it changes a disk in ways that only some invariants look at, or none.  `unseen`: it changes nothing but fields of the
process's memory that no invariant looks at.
"""


class Touches(NamedTuple):
    """What an effect reads and writes.

    Attributes
    ----------
    reads, writes
        The fields of its process's memory.
    sight
        What invariants see of it.
    looks, leaves
        What else it reads, and writes; the last argument is the number of its replica's disk.
    paths
        The nodes and the folders that it reads in coordination.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    sight: Sight
    looks: Callable[[Numbers, Any, int], int] = lambda _on, _effect, _disk: 0
    leaves: Callable[[Numbers, Any, int], int] = lambda _on, _effect, _disk: 0
    paths: Callable[[Any, Replica], Paths] = lambda _effect, _replica: ((), ())


# --- footprints -------------------------------------------------------------------------------------------------------

MEMORY, COORDINATION, DISK, DISKS, MEMORIES, ALONE, ALL_DISKS, EVERYTHING, ANSWERED, ALONE_ANSWERED, STORED = range(11)
"""Kinds of footprints: what a step looks at besides its place, and its process's memory and view.

Steps that are joined to it look at no more than memory and view, unless the process is alone: then also at the tree and
the disk.  Where a joined step looks at the disk, the disk is added when that is met (`footprints.WITH_DISK`).
"""


Joins: TypeAlias = Literal["never", "always", "alone", "by rule"]
"""When a step is taken at once after the one before it (`engine.reduction`).

`alone`: while its process starts, and no other process reads or writes what is its own.  `by rule`: that depends on the step
before, or on what is read (`is_joined`).
"""

Takes: TypeAlias = Literal["request", "disk", "known", "no time"]
"""What an effect takes in the simulator.

`request`: a way to coordination and back.  `disk`: the time of a disk, at the end of which it happens.  `known`: nothing; a
process of a table in a store knows the outcome.  `no time`: nothing, or what its own lines in the simulator say.
"""


class Row(NamedTuple):
    """What the checker knows of one type of effects.

    Attributes
    ----------
    effect
        The type.
    text
        A verb, and what it is about; the second argument is the name of the replica.  None: its name and its fields.
    shown
        Whether a trace has a line of it.  Of others the lines around tell the same.
    performs
        What it does inside its process, without a fault (`outcomes.local`).  None: something else does it.
    ends
        Every way in which it can end, with every fault.  None: as `performs` says.
    touches
        What it reads and writes.  None: nothing is known, which costs states and is never a wrong verdict.
    footprint
        The kind of its footprint: what its moves depend on.
    joins, takes
        As these types say.
    asked
        Whether a thread that stands there has a request which its process has not taken: the next process may take it.
    probe
        The names of the rare branches that a turn belongs to, or one name.  None: it belongs to none of its own.
    """

    effect: type
    text: Callable[[Any, str], tuple[str, str]] | None
    shown: bool
    performs: Callable[[Any, Here], Done | None] | None
    ends: Callable[[Any, Scene], Iterable[Branch]] | None
    touches: Touches | None
    footprint: int
    joins: Joins
    takes: Takes
    asked: bool
    probe: Callable[[Seen], str | Literal[False] | Iterator[str]] | None
