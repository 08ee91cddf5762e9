"""Options that several commands share, and how a command finds its cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.errors import BadInput

if TYPE_CHECKING:
    from replitree.client import Connection

DEFAULT_FOLDER = Path("replitree-data")
"""Folder that `replitree up` makes in the current folder when it is not told another."""

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
        url, folder = os.environ.get("REPLITREE_URL") or None, _folder_of_environment()
        if url is not None:
            return url
    if url is not None:
        return url
    chosen = folder or DEFAULT_FOLDER
    if not (chosen / "cluster.json").is_file():
        raise BadInput(
            f"there is no cluster in {chosen}: start one with `replitree up --dir {chosen}`, "
            "or name one with --url or --dir"
        )
    return str(chosen)


def _folder_of_environment() -> Path | None:
    value = os.environ.get("REPLITREE_DIR")
    return Path(value) if value else None


def connect(url: str | None, folder: Path | None) -> Connection:
    """Connect to the cluster that a command means."""
    cluster = find_cluster(url, folder)
    import replitree.client

    return replitree.client.connect(cluster)
