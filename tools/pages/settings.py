"""The page of settings: those of a server, with their defaults, and those of a table."""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec

from replitree.replica.kit.config import ServerConfig
from replitree.storage.schema.definition import TableSettings
from tools.pages.markdown import table

HEAD = """\
# Settings

A server reads its settings from the TOML file that `replitree server --config FILE` names; `replitree up --set NAME=VALUE`
writes one for all replicas of a local cluster. A table's settings are given where it is created. The setting of a table is
kept in its definition.
"""


def page() -> str:
    """Return the page."""
    return (
        "\n\n".join((HEAD, "## Of a server", _settings(ServerConfig), "## Of a table", _settings(TableSettings))) + "\n"
    )


def _settings(kind: Any) -> str:
    texts = described(kind)
    rows = []
    for field in msgspec.structs.fields(kind):
        default = "required" if field.required else f"`{_default(field)}`"
        rows.append([f"`{field.name}`", default, texts[field.name]])
    return table(["setting", "default", "what it is"], rows)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT:
        made = field.default_factory
        return str(made() if callable(made) else "")
    return str(list(field.default) if isinstance(field.default, tuple) else field.default) or '""'


def described(kind: Any) -> dict[str, str]:
    """Return what the docstring of a class says of each of its attributes."""
    _, _, attributes = (inspect.getdoc(kind) or "").partition("Attributes\n----------\n")
    found: dict[str, str] = {}
    for names, text in re.findall(r"^(\w[\w, ]*)\n((?: +.*\n?|\n)+)", attributes, re.MULTILINE):
        for name in names.split(","):
            found[name.strip()] = text.replace("``", "`")
    return found
