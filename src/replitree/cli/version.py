"""`replitree version`: what is installed."""

from __future__ import annotations

from replitree.cli.options import Json
from replitree.cli.output import Output

_PACKAGES = ("pyspark", "pyarrow", "kazoo")


def version(as_json: Json = False) -> None:
    """Show the versions of replitree and of what it stands on."""
    # What reads the metadata of distributions takes longer to import than most commands do for their work.
    import platform
    from importlib import metadata

    import replitree

    found: dict[str, str | None] = {"replitree": replitree.__version__}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    found["python"] = platform.python_version()
    text = "\n".join(f"{name} {number or 'not installed'}" for name, number in found.items())
    Output(as_json).result(found, text)
