"""The jar of the catalog: it is small, current, always the same, and in the wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from replitree.spark.session.catalog import CATALOG, CATALOG_CLASS, JAR, JARS, catalog_settings
from tools import jar


def test_jar_is_made_from_the_sources_of_now_and_is_small() -> None:
    assert jar.main() == 0
    assert jar.is_current()
    assert jar.JAR == JAR
    assert JAR.stat().st_size < jar.BYTES_MAX
    with zipfile.ZipFile(JAR) as found:
        names = found.namelist()
        assert f"{CATALOG_CLASS.replace('.', '/')}.class" in names
        assert {entry.date_time for entry in found.infolist()} == {jar.TIME}


def test_jar_of_other_sources_is_not_current(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jar.main() == 0
    monkeypatch.setattr(jar, "digest", lambda: "of other sources")
    assert not jar.is_current()


@pytest.mark.slow
def test_same_sources_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert jar.main() == 0
    made = JAR.read_bytes()
    monkeypatch.setattr(jar, "JAR", tmp_path / "jars" / JAR.name)
    jar.build()
    assert jar.JAR.read_bytes() == made


@pytest.mark.slow
def test_sources_that_do_not_compile_say_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Wrong.scala").write_text("class Wrong { val number: Int = true }")
    monkeypatch.setattr(jar, "SOURCES", tmp_path)
    with pytest.raises(jar.JarError, match=r"Wrong\.scala:1"):
        jar.build()
    assert jar.JAR == JAR, "the jar that was there is left"


def test_settings_add_the_jar_to_those_of_the_session() -> None:
    assert jar.main() == 0
    assert catalog_settings() == {JARS: str(JAR), CATALOG: CATALOG_CLASS}
    assert catalog_settings({JARS: "a.jar", CATALOG: "mine"}) == {JARS: f"a.jar,{JAR}", CATALOG: "mine"}


@pytest.mark.slow
def test_wheel_has_the_jar(tmp_path: Path) -> None:
    assert jar.main() == 0
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--build-constraint", "constraints.txt"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), "."], cwd=jar.ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as found:
        assert found.read("replitree/spark/jars/replitree-spark.jar") == JAR.read_bytes()
