"""Pages of the Python API: the docstrings of what a program uses."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tools.pages.markdown import document

PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "python": (
        "Python: clusters and inserts",
        (
            *("replitree:connect", "replitree:local", "replitree:spark_session", "replitree:LocalCluster"),
            "replitree:InsertResult",
        ),
    ),
    "python-connection": ("Python: Connection", ("replitree:Connection",)),
    "python-table": ("Python: Table, inserts and state", ("replitree:Table",)),
    "python-table-reads": ("Python: Table, reads", ("replitree:Table",)),
    "python-changes": (
        "Python: Table, changes",
        ("replitree.client.change.changes:TableChanges", "replitree.client.change.columns:TableColumns"),
    ),
    "python-settings": (
        "Python: Table, settings, tags, parts kept aside",
        (
            *("replitree.client.change.storing:TableStorage", "replitree.client.change.tagging:TableTags"),
            "replitree.client.change.aside:TableAside",
        ),
    ),
    "python-feed": (
        "Python: Table, streams, consumers and views",
        (
            *("replitree.client.change.streams:TableStreams", "replitree.client.change.consuming:TableConsumers"),
            "replitree.client.change.views:TableViews",
        ),
    ),
    "python-snapshot": ("Python: Snapshot", ("replitree:Snapshot",)),
    "python-scan": ("Python: Scan", ("replitree.client.read.scan:Scan",)),
}
"""Title, and the objects, of each page.  The bases of `Table` have pages of their own."""

READS = frozenset({"snapshot", "changes", "feed_page", "is_unchanged", "scan", "to_arrow", "batches", "to_df"})
"""Methods of `Table` that are on its page of reads."""


def page(name: str) -> str:
    """Return one page."""
    title, places = PAGES[name]
    return "\n\n".join((f"# {title}", *(piece for place in places for piece in _object(place, name)))) + "\n"


def _object(place: str, page_name: str) -> Iterator[str]:
    module, _, name = place.partition(":")
    found: Any = getattr(import_module(module), name)
    yield f"## {name}"
    if not inspect.isclass(found):
        yield from _described(name, found)
        return
    yield document(found.__doc__)
    for member, value in vars(found).items():
        is_documented = isinstance(value, property | staticmethod | classmethod) or inspect.isfunction(value)
        is_here = name != "Table" or (member in READS) == (page_name == "python-table-reads")
        if not member.startswith("_") and is_documented and inspect.getdoc(value) and is_here:
            yield f"### {name}.{member}"
            yield from _described(member, value)


def _described(name: str, value: Any) -> Iterator[str]:
    """Give the signature and the docstring."""
    if not isinstance(value, property):
        called = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        yield f"```python\n{_signature(name, called)}\n```"
    yield document(inspect.getdoc(value))


def _signature(name: str, function: Any) -> str:
    """Return how it is called, a line for each parameter when one line is too long."""
    signature = inspect.signature(function)
    given = list[str]()
    for each in signature.parameters.values():
        if each.name in ("self", "cls"):
            continue
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not any(before.startswith("*") for before in given):
            given.append("*")
        stars = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        kind = "" if each.annotation is each.empty else f": {_type(each.annotation)}"
        default = "" if each.default is each.empty else f" = {each.default!r}" if kind else f"={each.default!r}"
        given.append(f"{stars}{each.name}{kind}{default}")
    returned = signature.return_annotation
    end = ")" if returned is signature.empty else f") -> {_type(returned)}"
    short = f"{name}({', '.join(given)}{end}"
    return short if len(short) <= 100 else "\n".join((f"{name}(", *(f"    {each}," for each in given), end))


def _type(annotation: object) -> str:
    return annotation.strip("'\"") if isinstance(annotation, str) else inspect.formatannotation(annotation)
