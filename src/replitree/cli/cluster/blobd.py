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
    tls_certificate: Annotated[
        str, typer.Option("--tls-certificate", metavar="FILE", help="Speak TLS with this certificate, as PEM.")
    ] = "",
    tls_key: Annotated[str, typer.Option("--tls-key", metavar="FILE", help="Its private key, as PEM.")] = "",
    tls_clients_ca: Annotated[
        str,
        typer.Option(
            "--tls-clients-ca", metavar="FILE", help="Take only clients with a certificate of these authorities."
        ),
    ] = "",
) -> int:
    """Serve one member of a blob group until SIGTERM."""
    from replitree.client.transport.access import read_secret
    from replitree.replica.blobd import run
    from replitree.replica.kit.config import server_contexts
    from replitree.tls import TlsFiles

    host, _, port = listen.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise BadInput(f"--listen {listen!r} is not HOST:PORT, such as 127.0.0.1:7070")
    if make is not None:
        check_group_name(make)
    secret = read_secret(token_file, "name the file with the secret that this member shares with its clients")
    files = TlsFiles(tls_clients_ca, tls_certificate, tls_key).check(
        ("--tls-clients-ca", "--tls-certificate", "--tls-key")
    )
    if files.ca and not files.certificate:
        raise BadInput(
            "--tls-clients-ca needs --tls-certificate and --tls-key: clients show theirs to a server that speaks TLS"
        )
    tls = server_contexts(files, wants_certificates=bool(files.ca)) if files.certificate else None
    return run(directory, secret, (host.strip("[]"), int(port)), None if make is None else (make, number), tls)
