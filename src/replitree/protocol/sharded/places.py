"""Names and paths of sharded tables, beside those of `protocol.core.layout`.

::

    tables/<D>                            the name, taken: its value is that of sharded/<D>, and it has no children
    tables/<D>~<n>                        shard n: a table as any other, with the incarnation <incarnation>-<n>
    sharded/<D>                           its value is the incarnation: another one each time that <D> is created
    sharded/<D>/metadata, columns         the definition that all shards have: every command that changes theirs changes these
    sharded/<D>/commands                  its version counts the commands (`protocol.sharded.command`)
    sharded/<D>/life-<incarnation>        whether the table is being made, is there, or is being dropped (`Life`)
    sharded/<D>/map                       exists exactly while the table is there
    sharded/<D>/restored-<n>              while the table is being restored: shard n is (`protocol.rescue.restore_sharded`)
    sharded/<D>/placement                 which replicas host which shard (`protocol.sharded.placement`)
    sharded/<D>/views, views/<id>         materialised views (`protocol.sharded.views`)
    sharded/<D>/tokens, joint             see `layout`

The node ``tables/<D>`` keeps the name from tables that are not sharded, also from those that earlier versions create.  These
have ``metadata`` below it, so no process takes the one for the other.

A name with ``~`` is that of a shard; no table that a user names has one.
"""

from __future__ import annotations

import re

from replitree.errors import InvalidName
from replitree.protocol.core import layout
from replitree.protocol.core.layout import TablePlace, check_table_name
from replitree.protocol.sharded.shard_map import SHARD_NUMBER_MAX, Shard

_SHARD = re.compile(r"(0|[1-9][0-9]{0,3})")


def shard_name(name: str, shard: Shard) -> str:
    """Return the name of a shard's table.

    >>> shard_name("events", Shard(3))
    'events~3'
    """
    assert 0 <= shard <= SHARD_NUMBER_MAX
    return f"{name}~{shard}"


def is_shard_name(name: str) -> bool:
    """Whether this is the name of a shard's table, and not one that a user gives."""
    return "~" in name


def sharded_name(name: str) -> str:
    """Return the name that users know a table by: that of the sharded table if it is a shard.

    >>> sharded_name("events~3"), sharded_name("events")
    ('events', 'events')
    """
    return name.partition("~")[0]


def shard_number(name: str) -> Shard:
    """Return which shard a name is that of."""
    return Shard(int(name.partition("~")[2]))


def check_hosted_name(name: str) -> str:
    """Return `name` if a table with a log can have it: one that a user names, or a shard.

    Raises
    ------
    InvalidName
        It is neither.

    >>> check_hosted_name("events"), check_hosted_name("events~12")
    ('events', 'events~12')
    """
    table, tilde, shard = name.partition("~")
    check_table_name(table)
    if tilde and _SHARD.fullmatch(shard) is None:
        raise InvalidName(f"{name!r} is the name of no table and of no shard: a shard has a number behind its ~")
    return name


def hosted_path(root: str, name: str) -> str:
    """Return the path of a table with a log; the name is checked.

    >>> hosted_path("/replitree", "events~3")
    '/replitree/tables/events~3'
    """
    return f"{layout.tables(root)}/{check_hosted_name(name)}"


def shard_place(root: str, name: str, shard: Shard, incarnation: str = "") -> TablePlace:
    """Return a shard's place; `incarnation` is that of the sharded table, empty if only the shard's own nodes are wanted.

    >>> shard_place("/replitree", "events", Shard(3), "5f0c")
    TablePlace(path='/replitree/tables/events~3', parent=0, incarnation='5f0c-3')
    """
    path = f"{layout.tables(root)}/{shard_name(name, shard)}"
    return TablePlace(path, incarnation=f"{incarnation}-{shard}" if incarnation else "")


def all_sharded(root: str) -> str:
    """Return the parent of all sharded tables."""
    return f"{root.rstrip('/')}/sharded"


def reserved(root: str, name: str) -> str:
    """Return the node that keeps a sharded table's name from other tables."""
    return f"{layout.tables(root)}/{name}"


def metadata(place: str) -> str:
    """Return the node that holds a sharded table's identity, keys and settings."""
    return f"{place}/metadata"


def columns(place: str) -> str:
    """Return the node that holds a sharded table's columns."""
    return f"{place}/columns"


def placement(place: str) -> str:
    """Return the node that says which replicas host which shard."""
    return f"{place}/placement"


def life(place: str, incarnation: str) -> str:
    """Return the node that says whether this incarnation of a sharded table is being made, is there, or is being dropped."""
    return f"{place}/life-{incarnation}"


def restored_shard(place: str, shard: Shard) -> str:
    """Return the node that says that a shard of a table which is being restored has its parts again."""
    return f"{place}/restored-{shard}"
