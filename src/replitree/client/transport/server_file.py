"""The configuration file of a replica of a local cluster: what `up` manages is rewritten, and all else stays as users wrote it.

Guarantees: every line that is about nothing managed is kept, comments included; the file that is written is valid TOML, has the
managed values, and every other value that the old one had.

Absent on purpose: removing a setting.  An operator edits the file for that, while the replica is down.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches

from replitree.errors import BadInput
from replitree.replica.kit.config import ServerConfig

FIRST = {"listen": "127.0.0.1:0", "tables": ["*"]}
"""What a new file begins with; users may change it."""

_KEY = re.compile(r'\s*(?:"([^"]+)"|([A-Za-z0-9_-]+))\s*=')


def parse_setting(text: str) -> tuple[str, object]:
    """Read ``key=value``, where the value is TOML; one that is none is text.

    Raises
    ------
    BadInput
        It has another form, or servers have no such setting.

    >>> parse_setting("old_parts_lifetime_s=86400"), parse_setting("merge=fetch")
    (('old_parts_lifetime_s', 86400), ('merge', 'fetch'))
    """
    key, equals, value = (word.strip() for word in text.partition("="))
    if not equals or not value:
        raise BadInput(f"--set {text}: expected a setting and its value, as in --set old_parts_lifetime_s=86400")
    if key not in ServerConfig.__struct_fields__:
        near = get_close_matches(key, ServerConfig.__struct_fields__, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(ServerConfig.__struct_fields__)}"
        raise BadInput(f"--set {text}: servers have no setting {key!r}; {hint}")
    try:
        return key, tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        # A text without quotation marks: a shell has taken them away, or they were left out.
        return key, value


def rewritten(text: str, managed: Mapping[str, object], where: str) -> str:
    """Return a configuration with the managed values.

    Parameters
    ----------
    text
        The configuration so far; empty when there is none.
    managed
        Values by key.
    where
        What to call the file in a message.

    Raises
    ------
    BadInput
        The configuration so far can't be read.
    """
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{where} is no TOML ({error}): correct it, or remove it and start again") from error
    wanted = {**{key: value for key, value in FIRST.items() if key not in before}, **managed}
    # Managed keys are replaced before the first table; a key in a table is another setting.
    before_lines = text.splitlines()
    is_table = (number for number, line in enumerate(before_lines) if line.lstrip().startswith("["))
    first_table = next(is_table, len(before_lines))
    lines = [f"{key} = {json.dumps(value)}" for key, value in wanted.items()]
    for line in before_lines[:first_table]:
        key = _KEY.match(line)
        if key is None or (key[1] or key[2]) not in managed:
            lines.append(line)
    found = "\n".join([*lines, *before_lines[first_table:]]).rstrip("\n") + "\n"
    # A value over several lines loses its first line only: the result is read again to find that out.
    try:
        is_right = tomllib.loads(found) == {**before, **wanted}
    except tomllib.TOMLDecodeError:
        is_right = False
    if not is_right:
        raise BadInput(f"{where} has a managed setting ({', '.join(managed)}) over several lines: write it in one")
    return found
