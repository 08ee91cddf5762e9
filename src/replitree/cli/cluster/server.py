"""`replitree server`: one replica as a process, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path,
    typer.Option("--config", metavar="FILE", help="TOML: name, zookeeper, data, token_file, listen, tables."),
]


def server(config: Config) -> int:
    """Run one replica until SIGTERM; it finishes what it has begun."""
    from replitree.replica.server import main

    return main(str(config))
