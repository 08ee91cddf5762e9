"""Tables, snapshots and scans as people see them: the HTML of notebooks, and the plan of a scan.

Guarantees: text of users (names, conditions) is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import pyarrow as pa

from replitree.storage.schema.definition import TableDefinition
from replitree.storage.schema.layout import has_other_names, is_plain, layouts_of
from replitree.storage.schema.merge_policy import PLAIN
from replitree.storage.schema.spark_types import spark_type
from replitree.storage.sql.predicate import Predicate

if TYPE_CHECKING:
    from replitree.client.read.snapshot import Snapshot

COLUMNS_SHOWN_MAX = 50
"""Columns of a table that its HTML has at most."""


def _html(title: str, facts: Iterable[tuple[str, str]], columns: Sequence[tuple[str, str]]) -> str:
    """Return a title, facts below it, and a table of columns with their types."""
    shown = "".join(f"<br>{escape(name)}: {escape(text)}" for name, text in facts if text)
    rows = [f"<tr><td>{escape(name)}</td><td>{escape(kind)}</td></tr>" for name, kind in columns[:COLUMNS_SHOWN_MAX]]
    more = len(columns) - len(rows)
    rows += [f"<tr><td colspan=2>and {more:,} more</td></tr>"] if more > 0 else []
    head = "<tr><th>column</th><th>type</th></tr>"
    return f"<div><b>{escape(title)}</b>{shown}<table>{head}{''.join(rows)}</table></div>"


def _columns(definition: TableDefinition) -> list[tuple[str, str]]:
    found = ((column, spark_type(column.arrow_type)) for column in definition.columns)
    return [(column.name, kind if column.nullable else f"{kind} not null") for column, kind in found]


def table_html(definition: TableDefinition) -> str:
    """Return a table as HTML; nothing is asked of a replica.

    Parameters
    ----------
    definition
        The table.
    """
    facts = [
        ("order by", ", ".join(definition.order_by)),
        ("partition by", ", ".join(transform.text for transform in definition.partition_by)),
        ("policy", definition.policy.text if definition.policy != PLAIN else ""),
        ("storage", definition.store_url),
    ]
    return _html(f"Table {definition.name}", facts, _columns(definition))


def snapshot_html(snapshot: Snapshot) -> str:
    """Return a snapshot as HTML.

    Parameters
    ----------
    snapshot
        The snapshot.
    """
    facts = [
        ("index", f"{snapshot.index:,}"),
        ("replica", snapshot.replica),
        ("parts", f"{len(snapshot.parts):,}"),
        ("rows", f"{snapshot.rows:,}"),
        ("bytes", f"{snapshot.bytes:,}"),
        ("parts that can't be read", f"{len(snapshot.unread):,}" if snapshot.unread else ""),
    ]
    return _html(f"Snapshot of {snapshot.definition.name}", facts, _columns(snapshot.definition))


def scan_html(title: str, schema: pa.Schema) -> str:
    """Return a scan as HTML; nothing is read.

    Parameters
    ----------
    title
        What it scans.
    schema
        Of its rows.
    """
    return _html(title.strip("<>"), (), [(field.name, spark_type(field.type)) for field in schema])


def scan_plan(snapshot: Snapshot, columns: Sequence[str] | None, predicate: Predicate | None, *, final: bool) -> str:
    """Say how a scan of a snapshot is read.

    Parameters
    ----------
    snapshot
        What is scanned, with all of its parts.
    columns
        Names; None: all.
    predicate
        The condition.
    final
        Whether the table's policy is applied first.
    """
    definition = snapshot.definition
    names = [column.name for column in definition.selected(columns)]
    parts = [part for part in snapshot.parts if predicate is None or predicate.may_match(part.manifest)]
    files = [file for part in parts for file in part.manifest.files]
    rows, size = sum(part.manifest.rows for part in parts), sum(file.bytes for file in files)
    place = "on this machine"
    if snapshot.parts and not snapshot.is_local:
        stored = snapshot.stored
        place = f"objects in {stored.url}, brought here" if stored else "at replicas, brought here over HTTP"
    lines = [
        ("scan", f"{definition.name} at {snapshot.index:,} ({snapshot.replica})"),
        ("columns", ", ".join(names)),
        (
            "parts",
            f"{len(parts):,} of {len(snapshot.parts):,} can match: {len(files):,} files, {size:,} bytes, {rows:,} rows",
        ),
        ("files", place),
    ]
    if predicate is not None:
        plain, computed = predicate.split()
        how = [
            "statistics leave out parts, and the reader filters rows" if plain is not None else "",
            "it is calculated for each row" if computed is not None and plain is None else "",
            "what statistics can't judge is calculated for each row" if computed is not None and plain else "",
        ]
        lines.append(("condition", f"{predicate.text}  ({'; '.join(filter(None, how))})"))
    if final:
        lines.append(("final", f"the policy {definition.policy.text} is applied to all parts of a partition first"))
    layouts = layouts_of(definition, (part.manifest.schema_version for part in parts))
    older = sum(not is_plain(layouts[part.manifest.schema_version]) for part in parts)
    if older or has_other_names(definition):
        lines.append(
            ("columns changed", f"{older:,} parts have them under other names or types: renamed, cast, filled in")
        )
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


__all__ = ["scan_html", "scan_plan", "snapshot_html", "table_html"]
