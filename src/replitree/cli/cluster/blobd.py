"""`replitree blobd`: a member of a blob group for other hosts, in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replitree.cli.options import PORT_MAX, check_group_name
from replitree.errors import BadInput


def blobd(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="The member's directory.")],
    token_file: Annotated[Path, typer.Option("--token-file", metavar="FILE", help="File with the shared secret.")],
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0: any.")] = (
        "127.0.0.1:0"
    ),
    make: Annotated[
        str | None, typer.Option("--make", metavar="GROUP", help="Make the directory, as a member of this group.")
    ] = None,
    number: Annotated[
        int, typer.Option("--number", metavar="N", min=0, max=8, help="With --make: which member, from 0 on.")
    ] = 0,
) -> int:
    """Serve one member of a blob group until SIGTERM."""
    from replitree.client.transport.access import read_secret
    from replitree.replica.blobd import run

    host, _, port = listen.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise BadInput(f"--listen {listen!r} is not HOST:PORT, such as 127.0.0.1:7070")
    if make is not None:
        check_group_name(make)
    secret = read_secret(token_file, "name the file with the secret that this member shares with its clients")
    return run(directory, secret, (host.strip("[]"), int(port)), None if make is None else (make, number))
