"""`replitree fsck`: compare a table's object store with coordination and the replicas' disks; repair what can be repaired.

With ``--dropped`` it looks at what dropped tables have left in their stores.

The exit status is 0 only when everything could be judged and nothing is wrong any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from replitree.cli.options import Cluster, check_hosted, on_cluster
from replitree.cli.output import advised, byte_size, counted
from replitree.errors import BadInput

if TYPE_CHECKING:
    from replitree.client.transport.left_objects import LeftObjects

EXIT_NOT_CLEAN = 1

WithRepair = Annotated[
    bool, typer.Option("--repair", help="Repair what can be repaired; safe while the cluster works.")
]
Grace = Annotated[
    float | None,
    typer.Option(
        "--grace",
        metavar="SECONDS",
        min=0.0,
        help="How old something must be to count as left over.",
        show_default="a day",
    ),
]

EverybodyIsBack = Annotated[
    bool,
    typer.Option(
        "--everybody-is-back",
        help="After a restore: every server that had the table was started again, or never will be.",
    ),
]


OneName = Annotated[str | None, typer.Argument(metavar="TABLE", help="Name of the table.")]
Dropped = Annotated[
    bool, typer.Option("--dropped", help="What dropped tables have left in their stores, of all tables.")
]


@on_cluster
def fsck(
    at: Cluster,
    table: OneName = None,
    dropped: Dropped = False,
    repair: WithRepair = False,
    grace: Grace = None,
    everybody_is_back: EverybodyIsBack = False,
) -> None:
    """Compare a table's object store with the owners of its objects; status 0: nothing is wrong (any more)."""
    import msgspec

    from replitree.protocol.rescue.fsck import GRACE_S

    grace_s = GRACE_S if grace is None else grace
    if dropped and table is not None:
        raise BadInput(f"--dropped looks for what all dropped tables have left: leave {table} out")
    if dropped:
        with at.connect() as connection:
            found = connection.left_objects(with_repair=repair, grace_s=grace_s)
        at.out.result([msgspec.to_builtins(each) for each in found], "\n".join(map(_left, found)) or "nothing is left")
        if not all(each.gone for each in found):
            raise typer.Exit(EXIT_NOT_CLEAN)
        return
    if table is None:
        raise BadInput("say which table, or --dropped")
    check_hosted(table)
    with at.connect() as connection:
        report = connection.fsck(table, with_repair=repair, grace_s=grace_s, everybody_is_back=everybody_is_back)
    came = "nothing is wrong"
    if report.findings or not report.clean:
        done = sum(each.repair == "done" for each in report.findings)
        came = f"{counted(len(report.findings), 'finding')}, {done} repaired"
    has = f"{counted(report.shares, 'share')}, {counted(report.objects, 'object')}, {byte_size(report.bytes)}"
    summary = f"{report.table} on {report.store}: {has}; {came}"
    not_judged = [f"NOT JUDGED    what only {name} knows of: {why}" for name, why in report.silent.items()]
    if report.not_judged:
        not_judged.append(f"NOT JUDGED    uploads: {report.not_judged}")
    found_text = (
        advised(
            "repaired" if each.repair == "done" else each.kind.upper(),
            each.text + (f" ({byte_size(each.bytes)})" if each.bytes else ""),
            each.advice,
            12,
        )
        for each in report.findings
    )
    at.out.result(msgspec.to_builtins(report), "\n".join((summary, *not_judged, *found_text)))
    if not report.clean:
        raise typer.Exit(EXIT_NOT_CLEAN)


def _left(found: LeftObjects) -> str:
    what = (
        f"dropped table {found.table_id} on {found.store}: {counted(found.objects, 'object')}, {byte_size(found.bytes)}"
        + (f", {counted(found.uploads, 'upload')} not ended" if found.uploads else "")
    )
    if found.problem:
        return f"{what}; {found.problem}"
    if not found.gone:
        return f"{what}; replitree fsck --dropped --repair deletes them"
    has_had = found.objects or found.uploads
    later = f"; in {found.remembered_s / 3600:.1f} h look again for what came late" if found.remembered_s else ""
    return f"{what}; deleted{later}" if has_had else f"{what}{later}"
