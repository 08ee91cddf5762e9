"""`replitree ui`: the page in the browser, until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from replitree.cli.options import PORT_MAX, Cluster, on_cluster
from replitree.cli.output import say


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
) -> None:
    """Show the cluster in a browser: tables, replicas, the log, parts at any position; read only, until Ctrl-C."""
    from replitree.ui.process import run_page

    def tell(address: str) -> None:
        if at.as_json:
            at.out.json({"ready": True, "address": address})
        else:
            say(f"page {address}")
            say("the key in the address works once; Ctrl-C ends the page")

    with at.connect() as connection:
        # A wrong token is told here, and not in the browser.
        connection.servers()
        run_page(connection, port, tell)
