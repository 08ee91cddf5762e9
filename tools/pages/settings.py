"""The pages of settings: those of a server, and those of a table and of the environment, with their defaults."""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec

from replitree.replica.kit.config import ServerConfig
from replitree.storage.schema.definition import TableSettings
from tools.pages.markdown import table

SERVER = """\
# Settings of a server

A server reads its settings from the TOML file that `replitree server --config FILE` names, and from the environment;
`replitree up --set NAME=VALUE` writes one for all replicas of a local cluster. Settings of a table:
[settings-tables.md](settings-tables.md).
"""

TABLES = """\
# Settings of a table, and variables of the environment

The settings of a table are given where it is created, and are stored in its definition. Settings of a server:
[settings.md](settings.md).
"""


PAGES = ("settings", "settings-tables")
"""Names of the pages."""

ENVIRONMENT = {
    "REPLITREE_URL": "The cluster of commands and of `replitree.connect`: `zk://…`, or a folder of `replitree up`.",
    "REPLITREE_DIR": "The folder of the cluster, for commands without `--dir`; by default `./replitree-data`.",
    "REPLITREE_TOKEN": "The token of the cluster.",
    "REPLITREE_TOKEN_FILE": "A file with the token of the cluster, readable by its owner only.",
    "REPLITREE_ZK_AUTH": "`user:password` of ZooKeeper, so that the password is in no URL.",
    "REPLITREE_TLS_CA": "A PEM file with the authorities of the servers' certificates: clients speak TLS.",
    "REPLITREE_TLS_CERTIFICATE": "A PEM file with the certificate that clients show.",
    "REPLITREE_TLS_KEY": "A PEM file with its private key, readable by its owner only.",
    "REPLITREE_SET_KEY": "The setting `key` of a server, before its configuration file.",
    "REPLITREE_STORE_CREDENTIALS": "A file with credentials of object stores, for servers and for readers.",
    "REPLITREE_DEBUG": "Set: commands print the traceback of an error, as with `--debug`.",
}
"""What each variable of the environment says."""


def pages() -> dict[str, str]:
    """Return the pages by their names."""
    variables = table(["variable", "what it says"], ([f"`{name}`", text] for name, text in ENVIRONMENT.items()))
    tables = (TABLES, "## Of a table", _settings(TableSettings), "## Of the environment", variables)
    return {"settings": f"{SERVER}\n{_settings(ServerConfig)}\n", "settings-tables": "\n\n".join(tables) + "\n"}


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
