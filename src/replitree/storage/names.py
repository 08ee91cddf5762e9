"""Names of columns and fields as statements have them."""

from __future__ import annotations

import re


def format_name(name: str) -> str:
    """Write a name so that the parser reads it back: as it is, or in backquotes."""
    plain = re.fullmatch(r"[^\s<>(),:\[\]=`']+", name) is not None
    return name if plain else "`" + name.replace("`", "``") + "`"
