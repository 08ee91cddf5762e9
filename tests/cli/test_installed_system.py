"""The wheels, installed into an environment of their own without PySpark: a replica serves, and what needs Spark says so.

Only ZooKeeper runs in the environment of the tests: its jars are PySpark's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.coordination.embedded import EmbeddedZooKeeper
from tests.project.source import CHECKER, ROOT

pytestmark = pytest.mark.system

INSTALL_S_MAX = 400.0
RUN_S_MAX = 60.0
CONSTRAINTS = str(ROOT / "constraints.txt")

USE = """
import sys
import replitree

with replitree.connect(sys.argv[1]) as connection:
    table = connection.create_table("events", "id bigint not null, kind string", order_by="id")
    table.insert({"id": [1, 2], "kind": ["a", None]}, token="load")
    table.insert({"id": [1, 2], "kind": ["a", None]}, token="load")
    table.delete("id = 1")
    print(table.to_arrow(level="linearizable").to_pylist())
    try:
        table.to_df(type("SparkSession", (), {})())  # by its name: there is no other one here
    except replitree.ReplitreeError as error:
        print(type(error).__name__, error)
"""


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of the product and of its checker, by the name of the distribution."""
    folder = tmp_path_factory.mktemp("wheels")
    pip("wheel", "--no-deps", "--build-constraint", CONSTRAINTS, "--wheel-dir", folder, ROOT, CHECKER)
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def environment(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has the product and what it needs, without any extra."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=RUN_S_MAX)
    # Python compiles what it imports; pip would compile all files of all packages, which takes longer than the tests.
    install = ("install", "--no-compile", "--constraint", CONSTRAINTS)
    pip("--python", folder / "bin" / "python", *install, wheels["replitree"])
    return folder / "bin"


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[str]:
    """The url of a ZooKeeper."""
    with EmbeddedZooKeeper(tmp_path / "zookeeper", durable=False) as server:
        yield server.url


def run(environment: Path, *arguments: str | Path, status: int = 0, path: Path | None = None) -> str:
    """Run a program of the environment; return standard output, or standard error when it is to fail.

    `path`: a folder with more packages.
    """
    program, *rest = map(str, arguments)
    ran = subprocess.run(
        [str(environment / program), *rest],
        env=os.environ if path is None else {**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran.stderr if status else ran.stdout


def top_level(wheel: Path) -> set[str]:
    """Names of the packages in a wheel."""
    with zipfile.ZipFile(wheel) as files:
        return {name.partition("/")[0] for name in files.namelist() if ".dist-info/" not in name}


def test_wheels_have_no_benchmarks_and_no_published_models(wheels: dict[str, Path]) -> None:
    assert top_level(wheels["replitree"]) == {"replitree", "pyspark_replitree"}
    assert top_level(wheels["replitree_verify"]) == {"replitree_verify"}
    with zipfile.ZipFile(wheels["replitree"]) as files:
        rooms = {name.split("/")[1] for name in files.namelist() if name.startswith("replitree/")}
    assert rooms.isdisjoint({"verify", "published", "bench"})


def test_replica_serves_without_spark(environment: Path, zookeeper: str, tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    assert run(environment, "python", "-c", "import importlib.util as u; print(u.find_spec('pyspark'))") == "None\n"
    program, place = str(environment / "replitree"), str(folder)
    command = [program, "up", "--zookeeper", zookeeper, "--replicas", "1", "--dir", place, "--json"]
    up = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert up.stdout is not None
        assert json.loads(up.stdout.readline())
        read, missing = run(environment, "python", "-c", USE, folder).splitlines()
        assert read == "[{'id': 2, 'kind': None}]"
        assert missing.startswith("SparkMissing ")
        assert "replitree[spark]" in missing
        told = run(environment, "replitree", "sql", "select count(*) from events", "--dir", folder, status=1)
        assert "replitree[spark]" in told
        assert json.loads(run(environment, "replitree", "status", "--dir", folder, "--json"))["tables"]
    finally:
        up.send_signal(signal.SIGTERM)
        up.communicate(timeout=RUN_S_MAX)


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("verify", "list"), 2, "replitree[verify]"),
        (("bench", "inserts"), 2, "clone the repository"),
        (("up", "--replicas", "1"), 1, "replitree[spark]"),
        (("demo",), 1, "replitree[spark]"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_command_that_needs_more_says_what_to_install(
    environment: Path, tmp_path: Path, arguments: tuple[str, ...], status: int, told: str
) -> None:
    place = ("--dir", tmp_path / "data") if arguments[0] == "up" else ()
    assert told in run(environment, "replitree", *arguments, *place, status=status)


def test_checker_appears_when_it_is_installed(environment: Path, wheels: dict[str, Path], tmp_path: Path) -> None:
    pip("install", "--no-deps", "--target", tmp_path, wheels["replitree_verify"])
    assert "no violation" in run(environment, "replitree", "verify", "explore", "pull_gap", path=tmp_path)
    assert "no violation" in run(environment, "replitree", "verify", "simulate", "--seeds", "1:3", path=tmp_path)
    told = run(environment, "replitree", "verify", "bridge", "pull_gap", status=2, path=tmp_path)
    assert "clone the repository" in told
