"""The version that replica and client name to each other."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def installed_version() -> str:
    """Return the version of replitree that is installed."""
    try:
        return metadata.version("replitree")
    except metadata.PackageNotFoundError:
        return "unknown"
