"""What mappings look at in coordination: where the log begins and ends, and of each replica how it stands."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from replitree.coordination.tree import Tree
from replitree.errors import BadInput
from replitree.protocol.core import layout
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.log import log_start
from replitree.protocol.membership.table import DROPPED_HOST, HALF_BUILT, NOT_LOST


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a replica stands.  One that is not there, or is being dropped, is lost and away.

    Attributes
    ----------
    pointer
        The index of the next entry that it will pull.
    is_active, is_lost, is_half_built
        What coordination says of it.
    """

    pointer: int = 0
    is_active: bool = False
    is_lost: bool = False
    is_half_built: bool = False


ABSENT = Standing(is_lost=True)


class Outline(msgspec.Struct, frozen=True):
    """Coordination at one moment.

    Attributes
    ----------
    first, end
        The lowest index that is still in the log, and the one that comes next.
    replicas
        How each stands, in an order that stays.
    """

    first: int
    end: int
    replicas: tuple[Standing, ...]


def outline_of(tree: Tree, table: TablePlace, names: Iterable[str]) -> Outline:
    """Return what a tree shows of a table, whose log has one parent.

    Parameters
    ----------
    names
        All replicas that the table ever has during the run, in the same order for each outline.

    Raises
    ------
    BadInput
        The log goes on below a second parent: its indexes have a gap, and mappings count entries.
    """
    if tree.exists(layout.log_parent(table, 1)):
        raise BadInput(f"the log of table {table.name} goes on below a second parent: such runs can't be followed")
    log = tree.get(layout.log(table))
    first = 0 if log is None else log_start(table, log).first
    end = tree.next_sequence(layout.log(table)) or 0
    return Outline(first, max(first, end), tuple(_standing(tree, Replica(table, name)) for name in names))


def _standing(tree: Tree, replica: Replica) -> Standing:
    host, mark = tree.get(layout.host(replica)), tree.get(layout.is_lost(replica))
    pointer = tree.get(layout.log_pointer(replica))
    if host is None or host.value == DROPPED_HOST or mark is None or pointer is None:
        return ABSENT
    is_active = tree.exists(layout.is_active(replica))
    return Standing(layout.pointer_index(pointer.value), is_active, mark.value != NOT_LOST, mark.value == HALF_BUILT)
