"""`replitree token`: named tokens with a role, in a file that servers read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from replitree.cli.options import DEFAULT_FOLDER, Json, Yes
from replitree.cli.output import Output, confirm
from replitree.cli.plugins import CommandGroup
from replitree.errors import BadInput

app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Named tokens with a role, for clients that may not do everything."
)

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The file of tokens, tokens_file of the servers.",
        show_default="tokens.json in $REPLITREE_DIR, or in ./replitree-data",
    ),
]
TokenName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the token: small letters, digits, _ and -.")]


def _chosen(file: Path | None) -> Path:
    if file is not None:
        return file
    folder = Path(os.environ.get("REPLITREE_DIR") or DEFAULT_FOLDER)
    if not (folder / "cluster.json").is_file():
        raise BadInput(f"there is no cluster in {folder}: name the servers' file of tokens with --file")
    return folder / "tokens.json"


@app.command()
def create(
    name: TokenName,
    role: Annotated[str, typer.Option("--role", metavar="ROLE", help="read, write or admin.")] = "read",
    tables: Annotated[
        list[str] | None, typer.Option("--table", metavar="TABLE", help="Only for this table; repeat it.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the token there instead of printing it.")
    ] = None,
    file: File = None,
    as_json: Json = False,
) -> None:
    """Make a token and show it, this once; servers know it a second later."""
    from replitree.replica.kit.tokens import create_token
    from replitree.wire.named_token import Role

    if role not in tuple(Role):
        raise BadInput(f"--role {role}: there are {', '.join(Role)}")
    if output is not None and output.exists():
        raise BadInput(f"{output} is there already: name a new file, or remove it")
    path = _chosen(file)
    made = create_token(path, name, Role(role), tuple(tables) if tables else None)
    value = {"name": name, "role": role, "tables": tables or None, "file": str(path)}
    if output is None:
        Output(as_json).result({**value, "token": made.text}, made.text)
        return
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as target:
        target.write(made.text + "\n")
    Output(as_json).result({**value, "output": str(output)}, f"token {name} is in {output}")


@app.command(name="list")
def list_(file: File = None, as_json: Json = False) -> None:
    """List the tokens: names, roles and tables."""
    from replitree.replica.kit.tokens import read_tokens

    path = _chosen(file)
    found = read_tokens(path).tokens
    value = {
        "file": str(path),
        "tokens": [{"name": each.name, "role": each.role, "tables": each.tables, "made": each.made} for each in found],
    }
    rows = [
        (each.name, each.role, "all" if each.tables is None else ", ".join(each.tables), each.made) for each in found
    ]
    Output(as_json).listing(value, f"tokens in {path}", ("token", "role", "tables", "made (UTC)"), rows)


@app.command()
def revoke(name: TokenName, file: File = None, yes: Yes = False, as_json: Json = False) -> None:
    """Revoke a token and every ticket that was made of it; servers know it a second later."""
    from replitree.replica.kit.tokens import revoke_token

    path = _chosen(file)
    confirm(f"Revoke the token {name}?", yes=yes, as_json=as_json, otherwise=f"token {name} is still valid")
    revoke_token(path, name)
    Output(as_json).result({"revoked": name, "file": str(path)}, f"token {name} revoked")


__all__ = ["app"]
