"""`replitree shard status|add|remove|rebalance|move|resume|back`: which shard of a sharded table has which buckets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replitree.cli.options import Cluster, Name, check_name, on_cluster
from replitree.cli.output import byte_size, counted
from replitree.cli.plugins import CommandGroup
from replitree.errors import BadInput

if TYPE_CHECKING:
    from replitree.client.sharded.moving.resharding import MovesStatus
    from replitree.client.sharded.shards import TableShards

ShardNumber = Annotated[int, typer.Option("--shard", metavar="N", min=0, help="Which shard.")]
Weight = Annotated[
    int, typer.Option("--weight", metavar="W", min=1, help="Its share of the buckets, beside those of the others.")
]
On = Annotated[
    str,
    typer.Option("--on", metavar="REPLICAS", help="Replicas that host it; commas between them.", show_default="all"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would move.")]
Later = Annotated[bool, typer.Option("--no-wait", help="Only begin: the servers carry the rows over.")]

Keep = Annotated[bool, typer.Option("--keep", help="Only empty it: the shard stays, and owns nothing.")]

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Connect as the server with this configuration.", show_default=False),
]

app = typer.Typer(
    cls=CommandGroup,
    help="Add and empty shards of a sharded table, and move buckets between them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("status")
@on_cluster
def status(table: Name, at: Cluster) -> None:
    """Show how many buckets each shard owns, and what moves."""
    check_name(table)
    with at.connect() as connection:
        found = connection.shards(table).status()
    rows = [(shard, found.weights[shard], buckets) for shard, buckets in found.owned.items()]
    at.out.listing(_described(table, found), _headline(table, found), ("shard", "weight", "buckets"), rows)


@app.command("add")
@on_cluster
def add(table: Name, at: Cluster, replicas: On = "", weight: Weight = 1, later: Later = False) -> None:
    """Add a shard, and move buckets there."""
    check_name(table)
    with at.connect() as connection:
        shards = connection.shards(table)
        number = shards.add([name.strip() for name in replicas.split(",") if name.strip()], weight=weight)
        tell(f"{table} has shard {number} now, and inserts go there")
        _carry(shards, at, later=later)


@app.command("remove")
@on_cluster
def remove(
    table: Name, at: Cluster, shard: ShardNumber, later: Later = False, dry_run: DryRun = False, keep: Keep = False
) -> None:
    """Move all buckets of a shard to the others, then remove it; repeat it after it was cut off."""
    if dry_run:
        _weigh(table, at, {shard: 0}, later=later, dry_run=True)
        return
    from replitree.protocol.sharded.shard_map import Shard

    check_name(table)
    with at.connect() as connection:
        shards = connection.shards(table)
        found = shards.status()
        # Otherwise an earlier command has begun it, or has removed the shard and was cut off.
        weight = found.weights.get(Shard(shard))
        if weight is not None and not (found.moves and weight == 0):
            _begin(shards, {shard: 0})
        if not later:
            shards.carry(tell)
        if not (later or keep):
            shards.remove(shard)
            tell(f"{table} has no shard {shard} any more")
        found = shards.status()
        at.out.result(_described(table, found), _headline(table, found))


@app.command("rebalance")
@on_cluster
def rebalance(
    table: Name,
    at: Cluster,
    weights: Annotated[
        list[str] | None,
        typer.Option("--weight", metavar="N=W", help="A shard and its new weight; may be given several times."),
    ] = None,
    later: Later = False,
    dry_run: DryRun = False,
) -> None:
    """Move as few buckets as possible until each shard owns what its weight asks for."""
    _weigh(table, at, dict(map(_weight, weights or ())), later=later, dry_run=dry_run)


@app.command("move")
@on_cluster
def move(
    table: Name,
    at: Cluster,
    buckets: Annotated[
        str, typer.Option("--buckets", metavar="A-B,C", help="Which: numbers and ranges, commas between them.")
    ],
    target: Annotated[int, typer.Option("--to", metavar="N", min=0, help="The shard that gets them.")],
    later: Later = False,
) -> None:
    """Move single buckets to a shard, whatever the weights ask for."""
    check_name(table)
    with at.connect() as connection:
        shards = connection.shards(table)
        shards.move(parse_buckets(buckets), target)
        _carry(shards, at, later=later)


@app.command("resume")
@on_cluster
def resume(table: Name, at: Cluster, config: Config = None) -> None:
    """Carry moves on that another process has begun; the servers do that by themselves, too."""
    check_name(table)
    if config is not None and (at.url, at.folder) != (None, None):
        raise BadInput("give the configuration of a server, or name a cluster, not both")
    if config is None:
        opened = at.connect()
    else:
        from replitree.client.connection import connect
        from replitree.replica.kit.config import load_config

        server = load_config(config)
        opened = connect(
            server.zookeeper,
            token_file=server.token_file,
            tls_ca=server.tls_ca,
            tls_certificate=server.tls_certificate,
            tls_key=server.tls_key,
        )
    with opened as connection:
        _carry(connection.shards(table), at, later=False)


@app.command("back")
@on_cluster
def back(table: Name, at: Cluster, later: Later = False) -> None:
    """Turn moves back: buckets get their old owners, and what came to the new ones moves back."""
    check_name(table)
    with at.connect() as connection:
        shards = connection.shards(table)
        shards.turn_back()
        _carry(shards, at, later=later)


def parse_buckets(text: str) -> list[int]:
    """Read numbers and ranges of buckets.

    Raises
    ------
    BadInput
        It is not of that form.

    >>> parse_buckets("0-3, 9")
    [0, 1, 2, 3, 9]
    """
    found: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        bounds = (first, last if dash else first)
        # No number of a bucket has more digits; a longer range would be a list without end.
        if not all(each.isdecimal() and len(each) <= 5 for each in bounds):
            raise BadInput(f"--buckets {text}: expected numbers and ranges, as in 0-63,80")
        found += range(int(bounds[0]), int(bounds[1]) + 1)
    return found


def tell(text: str) -> None:
    """Tell on standard error what happens: standard output is for the result."""
    typer.echo(text, err=True)


def _weight(text: str) -> tuple[int, int]:
    shard, equals, weight = text.partition("=")
    if not (equals and shard.isdecimal() and weight.isdecimal()):
        raise BadInput(f"--weight {text}: expected a shard and its weight, as in 2=1")
    return int(shard), int(weight)


def _weigh(table: str, at: Cluster, weights: dict[int, int], *, later: bool, dry_run: bool) -> None:
    check_name(table)
    with at.connect() as connection:
        shards = connection.shards(table)
        if dry_run:
            planned = shards.plan(weights)
            value = {"table": table, "moves": _moves_of(planned.moves)}
            rows = [(each.source, each.target, len(each.buckets)) for each in planned.moves]
            at.out.listing(value, f"what would move in {table}", ("from", "to", "buckets"), rows)
            return
        _begin(shards, weights)
        _carry(shards, at, later=later)


def _begin(shards: TableShards, weights: dict[int, int]) -> None:
    wanted = shards.weigh(weights)
    count = sum(len(each.buckets) for each in wanted.moves)
    tell(f"{counted(count, 'bucket')} of {wanted.buckets} move" if count else "no bucket has to move")


def _carry(shards: TableShards, at: Cluster, *, later: bool) -> None:
    """Carry the moves on, unless that is for later; then tell what there is."""
    if not later:
        shards.carry(tell)
    found = shards.status()
    at.out.result(_described(shards.name, found), _headline(shards.name, found))


def _headline(table: str, found: MovesStatus) -> str:
    if not found.moves:
        left = (
            f"; of removed shards there still is {', '.join(map(str, found.left))}: remove it again"
            if found.left
            else ""
        )
        return f"shards of {table}: nothing moves{left}"
    count = sum(len(each.buckets) for each in found.moves)
    refused = f"; {found.refused.times:,} refused: {found.refused.reason}" if found.refused else ""
    return (
        f"shards of {table}: {counted(count, 'bucket')} move, {counted(found.rows, 'row')} ({byte_size(found.bytes)}) have"
        f" arrived, the last progress was {found.idle_s:,.0f} s ago{refused}"
    )


def _described(table: str, found: MovesStatus) -> dict[str, Any]:
    shards = [
        {"shard": shard, "weight": found.weights[shard], "buckets": count} for shard, count in found.owned.items()
    ]
    progress: dict[str, Any] = {
        "batches": found.batches,
        "rows": found.rows,
        "bytes": found.bytes,
        "rows_on_their_way": found.on_its_way,
        "idle_s": found.idle_s,
        "refused": found.refused.times if found.refused else 0,
        "refused_reason": found.refused.reason if found.refused else "",
    }
    return {"table": table, "shards": shards, "moves": _moves_of(found.moves), "left": [*found.left], **progress}


def _moves_of(moves: Any) -> list[dict[str, Any]]:
    return [{"from": each.source, "to": each.target, "buckets": [*each.buckets]} for each in moves]
