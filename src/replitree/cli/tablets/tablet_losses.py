"""`replitree tablet accept-loss`: the way out when confirmed entries can't be read any more."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import Json
from replitree.cli.output import Output
from replitree.errors import BadInput

if TYPE_CHECKING:
    from replitree.tablet.core.losses import Assessment

NAMED_MAX = 20
"""How many entries of one kind are named."""


def accept_loss(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with the group's file.")],
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="What happened; it is written down for good.")],
    tablet: Annotated[int, typer.Option("--tablet", metavar="N", min=1, help="Which tablet of the group.")] = 1,
    who: Annotated[str | None, typer.Option("--who", metavar="NAME", help="Who decides; by default you.")] = None,
    without: Annotated[
        list[int] | None, typer.Option("--without", metavar="N", help="A member that is away and given up; repeat it.")
    ] = None,
    lease_s: Annotated[
        float | None,
        typer.Option("--lease", metavar="SECONDS", min=0.0, help="Longest lease of a leader, where no entry tells."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> int:
    """Give up confirmed entries that can't be read, and all after them; says first what would be lost, and asks.

    It waits until no leader answers reads by itself any more: twice the longest lease that is known.
    """
    from replitree.tablet.members.losses import Losses, longest_wait_s

    if not why.strip():
        raise BadInput("--why must say what happened: it is the record of this decision")
    losses = Losses(directory, tablet, without or ())
    try:
        found = losses.look()
        if not as_json:
            _print_loss(tablet, found, without or (), longest_wait_s(found, lease_s))
        if not yes:
            if not sys.stdin.isatty():
                raise BadInput("there is no terminal to ask at: say --yes to accept the loss")
            answer = input(f"give this up for good? write the tablet's number, {tablet}, to agree: ")
            if answer.strip() != str(tablet):
                print("nothing was changed", file=sys.stderr)
                return 1
        record = losses.accept(found, who or getpass.getuser(), why, lease_s)
    finally:
        losses.close()
    text = f"the loss was accepted: the log goes on after {record.kept}; `replitree tablet inspect` shows the record"
    lost = {"unreadable": list(record.unreadable), "given_up": [str(place) for place in record.given_up]}
    Output(as_json).result({"tablet": tablet, "kept": str(record.kept), **lost, "when": record.when}, text)
    return 0


def _print_loss(tablet: int, found: Assessment, without: Sequence[int], wait_s: float | None) -> None:
    """Print what would be lost, and what a leader may still do meanwhile."""
    print(f"tablet {tablet}: what can't be read:")
    for line in found.unreadable[:NAMED_MAX]:
        print(f"  {line}")
    if len(found.unreadable) > NAMED_MAX:
        print(f"  and {len(found.unreadable) - NAMED_MAX} more")
    stays = f"everything up to entry {found.kept}" if found.accepted else "nothing: the tablet would begin anew"
    print(f"what would stay: {stays}")
    named = ", ".join(str(place) for place in found.given_up[:NAMED_MAX])
    more = f" and {len(found.given_up) - NAMED_MAX} more" if len(found.given_up) > NAMED_MAX else ""
    print(f"what would never count again: {named or 'no other entry'}{more}")
    print("stop leaders first: one that has a lease answers reads until that is over, and shows what is given up")
    known = (
        "how long that is no entry tells: say --lease SECONDS"
        if wait_s is None
        else f"{wait_s:g} s are waited for that"
    )
    print(f"  {known}")
    # A leader may reach a member that this process can't reach.
    if without:
        named = ", ".join(map(str, sorted(set(without))))
        print(f"  and one that reaches member {named} may acknowledge what it has sent, which is lost, too")
