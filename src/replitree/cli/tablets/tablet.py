"""`replitree tablet`: make a blob group, serve a machine from it, look at what is in it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replitree.cli.options import PORT_MAX, Json, check_address, check_group_name
from replitree.cli.output import EXIT_UNFINISHED, Output
from replitree.cli.plugins import CommandGroup
from replitree.cli.tablets.tablet_losses import accept_loss
from replitree.cli.tablets.tablet_replace import replace
from replitree.errors import BadInput

if TYPE_CHECKING:
    from replitree.tablet.members.inspection import GroupReport, TabletReport

app = typer.Typer(
    cls=CommandGroup,
    help="State machines with one leader, whose log lies in a blob group.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

app.command("accept-loss")(accept_loss)
app.command("replace")(replace)

EXIT_OF_VERDICT = {"sound": 0, "damaged": 1, "unknown": EXIT_UNFINISHED}

Group = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with the group's file.")]
Looked = Annotated[Path, typer.Argument(metavar="PATH", help="Folder of a group, or of one of its members.")]


class MachineName(Enum):
    """Which state machine."""

    REGISTER = "register"
    SEQUENCER = "sequencer"


@app.command("make")
def make(
    directory: Group,
    members: Annotated[
        list[Path] | None,
        typer.Option("--member", metavar="DIR", help="Directory of a member, one on each disk; repeat it."),
    ] = None,
    stores: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="URL", help="A member's place on an object store; repeat it."),
    ] = None,
    services: Annotated[
        list[str] | None,
        typer.Option("--service", metavar="HOST:PORT", help="A member that `replitree blobd` serves; repeat it."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="The shared secret of the services.")
    ] = None,
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, max=9, help="Members, when none is named.")] = 3,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Of the group.")] = "tablets",
    as_json: Json = False,
) -> None:
    """Make a new group: of directories, of places on object stores, of blob services; in this order, if several are named."""
    from replitree.tablet.members.folders import make_group
    from replitree.tablet.members.places import MemberPlace

    check_group_name(name)
    if services and token_file is None:
        raise BadInput("--service needs --token-file, the file with the shared secret of the services")
    elsewhere = [MemberPlace(store=url) for url in stores or ()]
    elsewhere += [
        MemberPlace(service=each, token_file=str(Path(token_file or "").absolute())) for each in services or ()
    ]
    made = make_group(directory, name, (*(members or ()), *elsewhere), count)
    text = f"made group {name} of {len(made.members)} members in {directory}; {made.write} must have what is stored"
    Output(as_json).result({"group": name, "members": [each.name for each in made.members], "write": made.write}, text)


@app.command("serve")
def serve(
    machine: Annotated[MachineName, typer.Argument(help="Which state machine.")],
    directory: Group,
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", min=0, max=PORT_MAX, help="Where to listen on this machine; 0: any."),
    ] = 0,
    peers: Annotated[
        list[str] | None, typer.Option("--peer", metavar="URL", help="Another candidate; repeat it.")
    ] = None,
    generations: Annotated[
        list[str] | None,
        typer.Option(
            "--generations", metavar="URL", help="A sequencer that hands out generations; repeat its addresses."
        ),
    ] = None,
    tablet: Annotated[int, typer.Option("--tablet", metavar="N", min=1, help="Which tablet of the group.")] = 1,
    lease: Annotated[
        float,
        typer.Option("--lease", metavar="S", min=0.0, help="Answer reads by itself for so long; 0: ask a quorum."),
    ] = 0.0,
    entries: Annotated[
        int, typer.Option("--snapshot-entries", metavar="N", min=1, help="Entries from one snapshot to the next.")
    ] = 4096,
) -> int:
    """Stand by and serve a machine over HTTP while this process leads, until SIGTERM."""
    from replitree.machines.apis import APIS
    from replitree.machines.process import CandidatePlace, run
    from replitree.tablet import Settings
    from replitree.tablet.core.pace import FLIGHTS, STORE_FLIGHTS, Limits
    from replitree.tablet.members.folders import read_group

    # A folder without a group will never have a leader; members may still come.
    file = read_group(directory)
    for option, urls in (("--peer", peers), ("--generations", generations)):
        for url in urls or ():
            check_address(option, url)
    place = CandidatePlace(directory, tablet, tuple(peers or ()), tuple(generations or ()))
    return run(
        APIS[machine.value],
        place,
        Settings(Limits(STORE_FLIGHTS if file.is_on_stores else FLIGHTS), lease, snapshot_entries=entries),
        port,
        lambda line: print(line, flush=True),
    )


@app.command("inspect")
def inspect(path: Looked, as_json: Json = False) -> int:
    """Print generations, zero entries, and what became or would become of each tail; changes nothing; exits as `verify`."""
    report = _look(path)
    if as_json:
        Output(as_json).json(_plain(report))
        return EXIT_OF_VERDICT[report.verdict]
    _print_members(report)
    for tablet in report.tablets:
        for loss in tablet.losses:
            record, is_done = loss.record, any(found.generation == loss.generation for found in tablet.generations)
            place = f"tablet {tablet.tablet}, generation {loss.generation}"
            print(f"LOSS ACCEPTED  {place}, by {record['who']}, {record['when']}: {record['why']}")
            for name in ("kept", "unreadable", "given_up", "away"):
                print(f"    {name.replace('_', ' ')}: {record[name] or 'nothing'}")
            if not is_done:
                print("    that generation is not in the log: it was never opened, or a snapshot has taken its place")
        fences = ", ".join("none" if fence is None else str(fence) for fence in tablet.fences)
        print(f"tablet {tablet.tablet}: fenced up to generation {fences}")
        for each in tablet.generations:
            said = "no zero entry"
            if each.zero is not None:
                zero: dict[str, Any] = dict(each.zero)
                tails = [word for word in ("accepted", "declined") if zero[f"tail_{word}"]]
                tail = "".join(f", tail {word} {', '.join(map(str, zero[f'tail_{word}']))}" for word in tails)
                said = f"zero entry: snapshot {zero['snapshot']}, predecessor {zero['predecessor']}{tail}"
            steps = "no entries" if each.first is None else f"{each.entries} entries, steps {each.first} to {each.last}"
            more = f", snapshots at {', '.join(map(str, each.snapshots))}" if each.snapshots else ""
            print(f"  generation {each.generation}: {said}; {steps}, confirmed up to {each.confirmed}{more}")
            for step, decision in each.decisions:
                print(f"    step {step}: {decision}")
        _print_complaints(tablet)
    return EXIT_OF_VERDICT[report.verdict]


@app.command("verify")
def verify(path: Looked, as_json: Json = False) -> int:
    """Check every copy and the chain of generations; exit 0 only when all is sound, 1: damaged, 3: not known."""
    report = _look(path)
    if as_json:
        Output(as_json).json(_plain(report))
        return EXIT_OF_VERDICT[report.verdict]
    _print_members(report)
    for tablet in report.tablets:
        _print_complaints(tablet)
    print(f"group {report.group} is {report.verdict}: {len(report.tablets)} tablets, {len(report.members)} members")
    return EXIT_OF_VERDICT[report.verdict]


def _look(path: Path) -> GroupReport:
    from replitree.tablet.members.inspection import inspect as look
    from replitree.tablet.members.inspection import look_at

    return look(look_at(path))


def _plain(report: GroupReport) -> Any:
    import msgspec

    return {**msgspec.to_builtins(report), "verdict": report.verdict}


def _print_members(report: GroupReport) -> None:
    for number, obstacle in enumerate(report.members):
        if obstacle is not None:
            print(f"UNKNOWN  member {number} would not take part: {obstacle}")
    for line in report.unknown:
        print(f"UNKNOWN  {line}")


def _print_complaints(tablet: TabletReport) -> None:
    for mark, lines in (("DAMAGED", tablet.wrong), ("UNKNOWN", tablet.unknown)):
        for line in lines:
            print(f"{mark}  tablet {tablet.tablet}: {line}")
