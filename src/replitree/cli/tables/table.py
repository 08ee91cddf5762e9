"""`replitree table`: make tables, show them, drop them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replitree.cli.options import Cluster, Yes, check_name, on_cluster
from replitree.cli.output import confirm, counted
from replitree.cli.plugins import CommandGroup
from replitree.cli.tables import aside, change, changes, tag
from replitree.cli.tables.files import find_source, open_rows
from replitree.errors import BadInput
from replitree.storage.schema.retention import ttl_text

if TYPE_CHECKING:
    from replitree.client.table import Table
    from replitree.storage.schema.definition import TableDefinition, TableSettings

app = typer.Typer(
    cls=CommandGroup, help="Create, list, show and drop tables.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the table: letters, digits and _, a letter first.")]
Schema = Annotated[
    str | None,
    typer.Option("--schema", metavar="COLUMNS", help='As in "id bigint not null, ts timestamp, tags array<string>".'),
]
Like = Annotated[str | None, typer.Option("--like", metavar="FILE", help="Take the columns of this file.")]
OrderBy = Annotated[
    list[str] | None, typer.Option("--order-by", metavar="COLUMNS", help="Sort by these; commas between them.")
]
PartitionBy = Annotated[
    list[str] | None,
    typer.Option(
        "--partition-by", metavar="TRANSFORMS", help='As in "month(ts)" or "bucket(16,id)"; commas between them.'
    ),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting, as in parts_max=3000.")
]
Policy = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help='What merges make of rows with equal order keys: plain, "replacing(version)",'
        ' "replacing(version, is_deleted)", "summing(a, b)".',
    ),
]
Storage = Annotated[
    str,
    typer.Option(
        "--storage",
        metavar="WHERE",
        help="local: on each replica's disk; or once for all of them, in the object store at a URL such as"
        " s3://bucket/prefix?endpoint=https://host:port, gs://bucket/prefix, az://container/prefix?account=name or file:///folder."
        " The servers use their own identity.",
    ),
]

Keep = Annotated[
    str | None,
    typer.Option(
        "--keep",
        metavar="TIME",
        help='How long parts that leave the table can be read by --as-of, as in "7 days".',
        show_default="old_parts_lifetime_s of each replica",
    ),
]

Feed = Annotated[
    str | None,
    typer.Option(
        "--feed",
        metavar="TIME",
        help="How long the change feed is kept, as in 24h (`table changes`).",
        show_default="off",
    ),
]


Ttl = Annotated[
    str | None,
    typer.Option(
        "--ttl",
        metavar="TTL",
        help='When rows are removed, as in "at + 90 days": a column of --order-by or --partition-by, and a time.',
        show_default="never",
    ),
]
Bloom = Annotated[
    list[str] | None,
    typer.Option("--bloom", metavar="COLUMNS", help="Write Bloom filters of these; commas between them."),
]

ShardBy = Annotated[
    list[str] | None,
    typer.Option(
        "--shard-by",
        metavar="COLUMNS",
        help="Make a sharded table: the rows of each shard are chosen by these columns.",
    ),
]
Shards = Annotated[
    int | None, typer.Option("--shards", metavar="N", min=1, help="Shards of a sharded table.", show_default="2")
]
Buckets = Annotated[
    int | None,
    typer.Option("--buckets", metavar="N", min=1, help="Buckets of its rows, a power of two.", show_default="256"),
]
Replicas = Annotated[
    int | None,
    typer.Option("--replicas", metavar="N", min=1, help="Replicas that host each shard.", show_default="all"),
]


@app.command("create")
@on_cluster
def create(  # noqa: PLR0913, PLR0917 - each is an option of the command
    name: Name,
    at: Cluster,
    schema: Schema = None,
    like: Like = None,
    order_by: OrderBy = None,
    partition_by: PartitionBy = None,
    settings: Settings = None,
    policy: Policy = "plain",
    storage: Storage = "local",
    keep: Keep = None,
    feed: Feed = None,
    ttl: Ttl = None,
    bloom: Bloom = None,
    shard_by: ShardBy = None,
    shards: Shards = None,
    buckets: Buckets = None,
    replicas: Replicas = None,
) -> None:
    """Create a table."""
    from replitree.client.transport.named_stores import is_named
    from replitree.storage.schema.definition import define_table

    if (schema is None) == (like is None):
        raise BadInput("say what the columns are: either --schema or --like")
    columns: Any = schema if schema is not None else open_rows(find_source(like or "", None)).schema
    order, partition, chosen = _split(order_by), _split(partition_by), parse_settings(settings or [])
    known = "local" if is_named(storage) else storage
    keys: dict[str, Any] = {"order_by": order, "partition_by": partition, "settings": chosen, "policy": policy}
    keys |= {"ttl": ttl or "", "bloom": _split(bloom)}
    define_table(name, columns, **keys, storage=known, keep=keep or "", feed=feed or "")
    with at.connect() as connection:
        sharding: dict[str, Any] = {"shards": shards, "buckets": buckets, "replicas": replicas}
        made = connection.create_table(
            name, columns, **keys, storage=storage, keep=keep, feed=feed, shard_by=_split(shard_by), **sharding
        )
        value = {**describe(made.definition), **describe_sharding(made)}
    at.out.result(value, f"table {name} created: {counted(len(value['columns']), 'column')}")


@app.command("list")
@on_cluster
def list_tables(at: Cluster) -> None:
    """List the tables."""
    with at.connect() as connection:
        names = sorted(connection.tables())
    at.out.result({"tables": names}, "\n".join(names) or "no tables yet: replitree table create makes one")


@app.command("show")
@on_cluster
def show(name: Name, at: Cluster) -> None:
    """Show a table's columns, keys and settings."""
    check_name(name)
    with at.connect() as connection:
        table = connection.table(name)
        value = {**describe(table.definition), **describe_sharding(table)}
    out = at.out
    if at.as_json:
        out.json(value)
        return
    order, partition = ", ".join(value["order_by"]), ", ".join(value["partition_by"])
    keys = {"order by": order or "nothing", "partition by": partition or "nothing", "policy": value["policy"]}
    keys["storage"], keys["keep"] = value["storage"], value["keep"] or "old_parts_lifetime_s of each replica"
    keys["feed"], keys["ttl"], keys["bloom"] = (
        value["feed"] or "off",
        value["ttl"] or "off",
        ", ".join(value["bloom"]) or "off",
    )
    if "shards" in value:
        keys["shard by"], keys["buckets"] = ", ".join(value["shard_by"]), value["buckets"]
    out.fields(f"table {name}", {**keys, **value["settings"]})
    if "shards" in value:
        shards = [(each["name"], each["buckets"], ", ".join(each["replicas"] or ("all",))) for each in value["shards"]]
        out.table("shards", ("name", "buckets", "placed on"), shards)
    from replitree.storage.schema.spark_types import spark_type
    from replitree.storage.schema.types import parse_type

    rows = [(column["name"], spark_type(parse_type(column["type"])), column["nullable"]) for column in value["columns"]]
    out.table("columns", ("name", "type", "nulls"), rows)


@app.command("drop")
@on_cluster
def drop(name: Name, at: Cluster, yes: Yes = False) -> None:
    """Drop a table with all its rows."""
    check_name(name)
    with at.connect() as connection:
        question = f"Drop table {name} with all its rows?"
        confirm(question, yes=yes, as_json=at.as_json, otherwise=f"table {name} was not dropped")
        connection.drop_table(name)
    at.out.result({"dropped": name}, f"table {name} dropped")


@app.command("place")
@on_cluster
def place(
    name: Name,
    at: Cluster,
    shard: Annotated[int, typer.Option("--shard", metavar="N", min=0, help="Which shard.")],
    replicas: Annotated[
        list[str] | None,
        typer.Option(
            "--on", metavar="REPLICAS", help="Replicas that host it; commas between them.", show_default="all"
        ),
    ] = None,
) -> None:
    """Place a shard of a sharded table on replicas: those that are added join it at once, others leave at their next start."""
    check_name(name)
    with at.connect() as connection:
        found = connection.place_shard(name, shard, _split(replicas)).replicas
    value = {"table": name, "placement": [{"shard": number, "replicas": list(names)} for number, names in found]}
    on = next((", ".join(names) for number, names in found if number == shard), "all replicas")
    at.out.result(value, f"shard {shard} of table {name} is placed on {on}")


for _commands in (change.COMMANDS, changes.COMMANDS, tag.COMMANDS, aside.COMMANDS):
    for _name, _command in _commands.items():
        app.command(_name)(_command)


def _split(given: Sequence[str] | None) -> list[str]:
    """Take lists apart at the commas that are not inside parentheses.

    >>> _split(["month(ts), bucket(16,id)"])
    ['month(ts)', 'bucket(16,id)']
    """
    from replitree.storage.files.names import split_list

    return [item for text in given or () for item in split_list(text)]


def parse_settings(given: Sequence[str]) -> TableSettings:
    """Read ``key=value`` pairs.

    Raises
    ------
    BadInput
        One is not of that form, or there is no such setting; lists those there are.
    """
    from replitree.storage.schema.definition import TableSettings

    values: dict[str, int] = {}
    for text in given:
        key, equals, value = (word.strip() for word in text.partition("="))
        if not equals or not value.lstrip("-").isdigit():
            raise BadInput(f"--set {text}: expected a setting and a whole number, as in --set parts_max=3000")
        if key not in TableSettings.__struct_fields__:
            raise BadInput(f"there is no setting {key!r}; there are {', '.join(TableSettings.__struct_fields__)}")
        values[key] = int(value)
    return TableSettings(**values)


def describe_sharding(table: Table) -> dict[str, Any]:
    """Return how a sharded table is sharded, as JSON; of another table nothing."""
    from replitree.client.sharded.sharded_table import ShardedTable

    if not isinstance(table, ShardedTable):
        return {}
    info, owned = table.info, Counter(table.info.map.owners)
    shards = [
        {"name": name, "buckets": owned[shard], "replicas": info.placement.of(shard)}
        for name, shard in zip(info.names, info.map.shards, strict=True)
    ]
    return {"shard_by": list(table.shard_by), "buckets": info.map.buckets, "shards": shards}


def describe(definition: TableDefinition) -> dict[str, Any]:
    """Return a definition as JSON."""
    return {
        "name": definition.name,
        "table_id": definition.table_id,
        "columns": [{"name": c.name, "type": c.type, "nullable": c.nullable} for c in definition.columns],
        "order_by": list(definition.order_by),
        "partition_by": [transform.text for transform in definition.partition_by],
        "policy": definition.policy.text,
        "storage": definition.storage,
        "keep": definition.keep,
        "feed": definition.feed,
        "ttl": ttl_text(definition.ttl),
        "bloom": list(definition.bloom),
        "schema_version": definition.schema_version,
        "settings": {name: getattr(definition.settings, name) for name in definition.settings.__struct_fields__},
    }
