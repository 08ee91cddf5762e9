"""Pages of the command line: every command with its arguments and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from replitree.cli.main import CliCommands, command_line
from tools.pages.markdown import table

PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "cli": (
        "Commands: cluster, inserts, queries",
        ("up", "ui", "server", "blobd", "demo", "version", "insert", "sql", "optimize"),
    ),
    "cli-upkeep": (
        "Commands: watching and repairing a cluster",
        ("status", "doctor", "recover", "drop-replica", "check", "fsck", "restore", "token"),
    ),
    "cli-table": ("Commands: replitree table, definition and settings", ("table",)),
    "cli-table-rows": ("Commands: replitree table, rows and versions", ("table",)),
    "cli-table-parts": ("Commands: replitree table, parts kept aside", ("table",)),
    "cli-streams": ("Commands: streams, consumers, views", ("streams", "consumers", "view")),
    "cli-shards": ("Commands: shards and tablets", ("shard", "tablet")),
}
"""Title and commands of each page."""

OF_TABLE = {
    "cli-table": (
        *(
            "create",
            "list",
            "show",
            "drop",
            "place",
            "alter",
            "storage",
            "keep",
            "ttl",
            "bloom",
            "feed",
            "mutations",
            "kill-mutation",
        ),
        *("pause-merges", "resume-merges"),
    ),
    "cli-table-rows": (
        *("partitions", "drop-partition", "drop-blocks", "truncate", "changes", "log", "tag", "tags", "delete-tag"),
        "restore-to",
    ),
}
"""Commands of `replitree table` that are on each of its pages; the third has the others."""


def page(name: str) -> str:
    """Return one page."""
    root: Any = command_line()
    context = root.make_context("replitree", ["version"], resilient_parsing=True)
    title, names = PAGES[name]
    pieces = [f"# {title}"]
    for each in names:
        pieces += _command(f"replitree {each}", root.get_command(context, each), name)
    return "\n\n".join(pieces) + "\n"


def listed() -> set[str]:
    """Return the commands that the pages have."""
    return {each for _, names in PAGES.values() for each in names}


def built_in() -> set[str]:
    """Return the commands that the program has without plug-ins."""
    return set(CliCommands.built_in)


def _command(name: str, command: Any, page_name: str) -> Iterator[str]:
    if hasattr(command, "list_commands"):
        for inner in command.list_commands(None):
            home = next((page for page, names in OF_TABLE.items() if inner in names), "cli-table-parts")
            if name != "replitree table" or home == page_name:
                yield from _command(f"{name} {inner}", command.get_command(None, inner), page_name)
        return
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    usage = " ".join((name, *("[OPTIONS]" if options else "",), *(_metavar(each) for each in arguments)))
    yield f"## {name}"
    yield f"```\n{usage}\n```"
    yield command.help or ""
    rows = [[f"`{_metavar(each)}`", each.help or ""] for each in arguments]
    rows += [[f"`{', '.join((*each.opts, *each.secondary_opts))}`", _option(each)] for each in options]
    if rows:
        yield table(["argument or option", "what it is"], rows)


def _metavar(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper()
    name += "…" if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def _option(option: Any) -> str:
    """Return what an option is, its values and its default."""
    text = option.help or ""
    choices = getattr(option.type, "choices", None)
    if choices:
        text += f" One of: {', '.join(f'`{each}`' for each in choices)}."
    if option.default not in (None, False, (), []) and not callable(option.default):
        text += f" Default: `{option.default}`."
    return text
