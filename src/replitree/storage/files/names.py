"""Names of columns and fields as statements have them."""

from __future__ import annotations

import re
from collections.abc import Sequence


def format_name(name: str) -> str:
    """Write a name so that the parser reads it back: as it is, or in backquotes."""
    plain = re.fullmatch(r"[^\s<>(),:\[\]=`']+", name) is not None
    return name if plain else "`" + name.replace("`", "``") + "`"


def format_path(names: Sequence[str]) -> str:
    """Write a path, from a column inwards, as statements have it.

    Examples
    --------
    >>> format_path(("a", "b.c", "odd name"))
    'a.`b.c`.`odd name`'
    """
    return ".".join(format_name(name) if "." not in name else "`" + name.replace("`", "``") + "`" for name in names)


def split_list(text: str) -> list[str]:
    """Take a list apart at the commas that are in no parentheses and no backquotes.

    >>> split_list("month(ts), bucket(16,id), `a,b`")
    ['month(ts)', 'bucket(16,id)', '`a,b`']
    """
    begins, depth, quoted = [0], 0, False
    for place, sign in enumerate(text):
        quoted ^= sign == "`"
        depth += 0 if quoted else (sign == "(") - (sign == ")")
        if sign == "," and depth == 0 and not quoted:
            begins.append(place + 1)
    ends = [*(begin - 1 for begin in begins[1:]), len(text)]
    items = [text[begin:end].strip() for begin, end in zip(begins, ends, strict=True)]
    return [item for item in items if item]
