"""Options that several commands share, and how a command finds its cluster.

A command that works on a cluster takes a `Cluster`, one that changes a table a `ChangeOptions`, and is decorated with
`on_cluster`: on the command line each of their fields is an option of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints
from urllib.parse import urlsplit

import typer

from replitree.cli.output import Output
from replitree.errors import BadInput, InvalidName

if TYPE_CHECKING:
    from replitree.client import Connection

PORT_MAX = 65535
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

DEFAULT_FOLDER = Path("replitree-data")
"""Folder that `replitree up` makes in the current folder when it is not told another."""

Name = Annotated[str, typer.Argument(metavar="TABLE", help="Name of the table.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Json = Annotated[bool, typer.Option("--json", help="Print pure JSON on standard output.")]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="zk://HOST:PORT/PATH", help="Cluster to connect to.", show_default="$REPLITREE_URL"),
]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--dir", metavar="DIR", help="Folder made by `up`.", show_default="$REPLITREE_DIR, or ./replitree-data"
    ),
]


Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=0.0, max=3600.0, help="How long to wait until it is finished.")
]
CommandId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Repeat a change whose outcome is unknown; the error named the id."),
]
WAIT_S = 60.0
"""How long a command waits by default, in seconds."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster a command means, and how it answers."""

    url: Url = None
    folder: Folder = None
    as_json: Json = False

    @property
    def out(self) -> Output:
        """Where the result goes."""
        return Output(self.as_json)

    def connect(self) -> Connection:
        """Connect to the cluster.

        Raises
        ------
        BadInput
            Two clusters are named, or none is there; says what to do.
        """
        cluster = find_cluster(self.url, self.folder)
        import replitree.client

        return replitree.client.connect(cluster)


@dataclass(frozen=True, slots=True)
class ChangeOptions(Cluster):
    """What a command that becomes an entry of the log needs besides: how long to wait, and its id when it is repeated."""

    wait: Wait = WAIT_S
    command_id: CommandId = None


def on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of its `Cluster` or `ChangeOptions`, after its own."""
    own, groups, shared = list[Parameter](), dict[str, type[Cluster]](), list[Parameter]()
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in signature(command).parameters.items():
        kind = hints[name]
        if isinstance(kind, type) and issubclass(kind, Cluster):
            groups[name] = kind
            options = get_type_hints(kind, include_extras=True)
            shared += [
                Parameter(
                    each.name, Parameter.POSITIONAL_OR_KEYWORD, default=each.default, annotation=options[each.name]
                )
                for each in fields(kind)
            ]
        else:
            own.append(parameter.replace(annotation=kind))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        command(**given)

    run.__annotations__ = {each.name: each.annotation for each in (*own, *shared)}
    vars(run)["__signature__"] = Signature([*own, *shared])
    return run


def check_name(table: str) -> None:
    """Do nothing when a table can have this name.

    Raises
    ------
    InvalidName
        It can't.
    """
    from replitree.protocol.core.layout import check_table_name

    check_table_name(table)


def check_hosted(table: str) -> None:
    """Do nothing when a table can have this name, or a shard of one, as in ``events~0``.

    Raises
    ------
    InvalidName
        Neither can.
    """
    from replitree.protocol.sharded.places import check_hosted_name

    check_hosted_name(table)


def check_group_name(name: str) -> None:
    """Do nothing when a blob group can have this name.

    Raises
    ------
    InvalidName
        It can't.
    """
    if _GROUP.fullmatch(name) is None:
        raise InvalidName(
            f"{name!r} can't be a blob group's name: use letters, digits, . - and _, a letter or digit first, at most 100"
        )


def check_address(option: str, url: str) -> None:
    """Do nothing when this is the address of a process that serves HTTP.

    Raises
    ------
    BadInput
        It is not.
    """
    try:
        parts = urlsplit(url)
        is_address = (
            parts.scheme == "http" and bool(parts.hostname) and parts.port is not None and not parts.path.strip("/")
        )
    except ValueError:
        is_address = False
    if not is_address:
        raise BadInput(f"{option} {url!r} is no address such as http://127.0.0.1:7070")


def find_cluster(url: str | None, folder: Path | None) -> str:
    """Decide which cluster a command means: the options first, then the environment, then what `up` made here.

    Raises
    ------
    BadInput
        Two clusters are named, or none is there; says what to do.
    """
    if url is not None and folder is not None:
        raise BadInput("--url and --dir name two clusters: give one of them")
    if url is None and folder is None:
        url = os.environ.get("REPLITREE_URL") or None
        in_environment = os.environ.get("REPLITREE_DIR")
        folder = Path(in_environment) if in_environment else None
    if url is not None:
        return url
    chosen = folder or DEFAULT_FOLDER
    if not (chosen / "cluster.json").is_file():
        raise BadInput(
            f"there is no cluster in {chosen}: start one with `replitree up --dir {chosen}`, "
            "or name one with --url or --dir"
        )
    return str(chosen)
