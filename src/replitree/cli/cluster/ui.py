"""`replitree ui`: the page in the browser, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replitree.cli.options import PORT_MAX, Cluster, check_address, on_cluster
from replitree.cli.output import say
from replitree.errors import BadInput


@on_cluster
def ui(
    at: Cluster,
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="PORT",
            min=0,
            max=PORT_MAX,
            help="Listen there, on this machine only.",
            show_default="any that is free",
        ),
    ] = 0,
    tablets: Annotated[
        list[str] | None,
        typer.Option(
            "--tablet",
            metavar="URL|DIR",
            help="Show a tablet, too: a candidate's address, or the folder of a blob group; repeat it.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Show a trace that `replitree verify explore --json` has written."
        ),
    ] = None,
) -> None:
    """Show the cluster in a browser: tables, replicas, the log, parts at any position; read only, until Ctrl-C."""
    from replitree.ui.extras import Extras, read_trace
    from replitree.ui.process import run_page

    for place in tablets or ():
        if "://" in place:
            check_address("--tablet", place)
        elif not Path(place).is_dir():
            raise BadInput(
                f"--tablet {place}: no such folder; name a candidate's address or the folder of a blob group"
            )
    # A file that can't be read is told here, and not in the browser.
    read_trace(trace)
    extras = Extras(tuple(tablets or ()), trace)

    def tell(address: str) -> None:
        if at.as_json:
            at.out.json({"ready": True, "address": address})
        else:
            say(f"page {address}")
            say("the key in the address works once; Ctrl-C ends the page")

    with at.connect() as connection:
        # A wrong token is told here, and not in the browser.
        connection.servers()
        run_page(connection, port, tell, extras)
