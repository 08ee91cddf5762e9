"""`replitree verify bridge`: what the procedures do, a packed model can do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import Json
from replitree.cli.output import EXIT_UNFINISHED, Output
from replitree.errors import BadInput

if TYPE_CHECKING:
    from replitree_published.bridge.report import Bridged

Model = Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Follow every run of this model.")]
Seeds = Annotated[str | None, typer.Option("--seeds", metavar="A:B", help="Follow the simulated runs of these seeds.")]
Replay = Annotated[Path | None, typer.Option("--replay", metavar="FILE", help="Follow a recorded run.")]
Record = Annotated[Path | None, typer.Option("--record", metavar="FILE", help="Write down the run of one seed.")]
Trace = Annotated[
    Path | None, typer.Option("--trace", metavar="FOLDER", help="Follow what running servers did, by their traces.")
]
Mutant = Annotated[
    str | None, typer.Option("--mutant", metavar="NAME", help="Break the protocol; then some step must have no way.")
]
Onto = Annotated[
    str | None,
    typer.Option("--onto", metavar="MAPPING", help="Of a model: cleaning (by default), replication, or quorum."),
]
Hours = Annotated[int, typer.Option("--hours", metavar="H", min=0, help="Stretch simulated runs to so many hours.")]

app = typer.Typer(add_completion=False)


@app.command("bridge")
def bridge(  # noqa: PLR0913, PLR0917 - each is an option of the command
    model: Model = None,
    onto: Onto = None,
    seeds: Seeds = None,
    replay: Replay = None,
    trace: Trace = None,
    mutant: Mutant = None,
    record: Record = None,
    hours: Hours = 0,
    as_json: Json = False,
) -> int:
    """Follow runs on a packed model; exit 0 when every step has a way there (or the mutant has none), 1 if not, 3 undecided."""
    if [model, seeds, replay, trace].count(None) != 3:
        raise BadInput("name one thing to follow: a model, --seeds A:B, --replay FILE, or --trace FOLDER")
    if record is not None and seeds is None:
        raise BadInput("--record writes down a simulated run: use it with --seeds")
    if (replay is not None or trace is not None) and mutant is not None:
        raise BadInput("--mutant breaks what runs, and --replay and --trace run nothing; use one of them")
    if onto is not None and model is None:
        raise BadInput("--onto is for models; simulated and recorded runs say themselves onto what they are mapped")
    found = _followed(model, onto or "cleaning", seeds, replay or trace, mutant, record, hours)
    Output(as_json).result(asdict(found), "\n".join(_lines(found)))
    if found.undecided and not found.violations:
        return EXIT_UNFINISHED
    return 0 if bool(found.violations) == (mutant is not None) else 1


def _followed(
    model: str | None,
    onto: str,
    seeds: str | None,
    replay: Path | None,
    mutant: str | None,
    record: Path | None,
    hours: int,
) -> Bridged:
    from replitree_published.bridge import report
    from replitree_verify.cli.main import parse_seeds

    if model is not None:
        return report.bridge_model(model, mutant, onto)
    if replay is not None:
        return report.bridge_traces(replay) if replay.is_dir() else report.bridge_file(replay)
    assert seeds is not None
    return report.bridge_seeds(*parse_seeds(seeds), mutant, hours, record)


def _lines(found: Bridged) -> list[str]:
    """Say for people what was found."""
    mutant = "" if found.mutant is None else f" with mutant {found.mutant}"
    counted = f"{found.states:,} states, {found.steps:,} different steps in {found.seconds:.2f} s"
    taken = ", ".join(f"{action} {count:,}" for action, count in found.taken.items()) or "none"
    lines = [f"{found.name}{mutant} on {found.onto}: {counted}", f"actions taken, and by how many of them: {taken}"]
    if found.trace:
        lines += ["", "shortest way to a step that has none there:", "", *found.trace, ""]
    for violation in found.violations:
        seed = f"seed {violation['seed']}: " if "seed" in violation else ""
        lines.append(f"violated: {seed}{violation['what']}")
    if found.undecided:
        lines.append(f"UNDECIDED: {found.undecided}")
    elif found.mutant is None:
        lines.append("VIOLATED" if found.violations else "every step has a way")
    else:
        lines.append("caught" if found.violations else "NOT CAUGHT: every step has a way")
    return lines
