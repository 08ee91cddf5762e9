"""`replitree tablet replace`: a member is made anew from the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import Json
from replitree.cli.output import Output
from replitree.errors import BadInput

if TYPE_CHECKING:
    pass


def replace(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with the group's file.")],
    member: Annotated[int, typer.Option("--member", metavar="N", min=0, help="Which member, from 0 on.")],
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Its new directory; by default where it was.")
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="Its new place on an object store.")
    ] = None,
    service: Annotated[
        str | None, typer.Option("--service", metavar="HOST:PORT", help="Where `replitree blobd` serves the new one.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="The shared secret of the service.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a lost member anew from the others; the old one never counts again.  It may be repeated, whatever went wrong."""
    from replitree.tablet.members.places import MemberPlace
    from replitree.tablet.members.replacing import replace_member

    if sum(each is not None for each in (folder, store, service)) > 1:
        raise BadInput("a member has one place: name one of --dir, --store and --service")
    if service is not None and token_file is None:
        raise BadInput("--service needs --token-file, the file with the shared secret of the service")
    place: Path | MemberPlace | None = folder
    if service is not None:
        place = MemberPlace(service=service, token_file=str(Path(token_file or "").absolute()))
    elif store is not None:
        place = MemberPlace(store=store)
    done = replace_member(directory, member, place)
    text = (
        f"member {member} is {done.place.name} now: {done.blobs} blobs, {done.bytes} bytes from the others;"
        " give the group's file to every host that uses the group"
    )
    Output(as_json).result({"member": member, "place": done.place.name, "blobs": done.blobs, "bytes": done.bytes}, text)
