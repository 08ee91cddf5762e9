"""`replitree server`: one replica as a process, in the foreground; or a look at its configuration before that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from replitree.cli.options import Json
from replitree.cli.output import Output
from replitree.errors import BadInput

EXIT_WRONG = 2
"""The configuration has a mistake with which the server would not start, or not serve."""

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="TOML: name, zookeeper, data, token_file, listen, tables; variables REPLITREE_SET_KEY come before it.",
        show_default="only the environment",
    ),
]
Check = Annotated[
    bool, typer.Option("--check", help="Check configuration, files, addresses and stores; start nothing.")
]
Schema = Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the configuration, for editors.")]


def server(config: Config = None, check: Check = False, schema: Schema = False, as_json: Json = False) -> int:
    """Run one replica until SIGTERM; it finishes what it has begun."""
    from replitree.replica.kit.config import NO_FILE

    if schema:
        from replitree.replica.check_config import schema_of_config

        print(json.dumps(schema_of_config(), indent=2, ensure_ascii=False))
        return 0
    path = NO_FILE if config is None else config
    if check:
        return _check(path, Output(as_json))
    if as_json:
        raise BadInput("--json is for --check: a server logs as its setting log_format says")
    from replitree.replica.server_process import main

    return main(str(path))


def _check(path: Path, out: Output) -> int:
    import msgspec

    from replitree.replica.check_config import CheckState, check_config

    found = check_config(path)
    wrong = [each for each in found if each.state is CheckState.WRONG]
    lines = [f"{each.state.value:<8} {each.item}: {each.text}" for each in found]
    lines.append(f"{len(wrong)} wrong" if wrong else "a server with this configuration can start")
    out.result({"ok": not wrong, "checks": msgspec.to_builtins(found)}, "\n".join(lines))
    return EXIT_WRONG if wrong else 0
