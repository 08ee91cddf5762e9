"""The jar of the catalog: it is small, current, always the same, and in the wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types

from replitree.spark.session.catalog import CATALOG, CATALOG_CLASS, JAR, JARS, catalog_settings, use_catalog
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


def test_classes_have_nothing_that_only_compilers_read_and_are_whole() -> None:
    assert jar.main() == 0
    with zipfile.ZipFile(JAR) as found:
        classes = [found.read(name) for name in found.namelist() if name.endswith(".class")]
    # Of a class without such attributes the copy is the class itself, to the byte.
    assert all(jar.ClassCopy(each).made() == each for each in classes)
    with pytest.raises(jar.JarError, match="unknown kind 255"):
        jar.ClassCopy(classes[0][:10] + b"\xff" + classes[0][11:]).made()


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


class Session:
    """A session whose JVM answers the look at the jar with an error, or not."""

    version = "5.0"

    def __init__(self, answer: Exception | None) -> None:
        self.settings: dict[str, str] = {CATALOG: CATALOG_CLASS}
        self._answer = answer

    @property
    def conf(self) -> Any:
        return SimpleNamespace(get=self.settings.get, unset=self.settings.pop)

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - Spark's name
        def check() -> None:
            if self._answer is not None:
                raise self._answer

        spark = SimpleNamespace(Links=SimpleNamespace(check=check))
        return SimpleNamespace(_jvm=SimpleNamespace(io=SimpleNamespace(replitree=SimpleNamespace(spark=spark))))


def test_session_whose_java_can_not_load_the_jar_has_no_catalog_and_one_line_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept: Any = Session(None)
    use_catalog(kept)
    assert (kept.settings, caplog.records) == ({CATALOG: CATALOG_CLASS}, [])
    answers = {
        Py4JError("java.lang.NoSuchMethodException: ParquetScanBuilder.<init>\n\tat …"): "ParquetScanBuilder",
        TypeError("'JavaPackage' object is not callable"): "without the jar",
    }
    for answer, reason in answers.items():
        session: Any = Session(answer)
        caplog.clear()
        use_catalog(session)
        assert session.settings == {}
        (record,) = caplog.records
        assert reason in record.getMessage()
        assert "\n" not in record.getMessage()


def linked(spark: Path) -> str:
    """Let a Java that has the jars of a PySpark look for what the catalog needs; return what it says, "" when all is there."""
    command = [
        jar.java(),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{spark / 'jars' / '*'}:{JAR}",
        "io.replitree.spark.Links",
    ]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False).stderr


@pytest.mark.slow
def test_jar_links_against_the_installed_pyspark_and_says_what_is_missing_in_another(tmp_path: Path) -> None:
    assert jar.main() == 0
    assert linked(Path(pyspark.__file__).parent) == ""
    jars = tmp_path / "jars"
    jars.mkdir()
    for each in (Path(pyspark.__file__).parent / "jars").glob("*.jar"):
        if not each.name.startswith("spark-sql_"):
            (jars / each.name).symlink_to(each)
    assert "NoClassDefFoundError: org/apache/spark/sql/" in linked(tmp_path)


@pytest.mark.slow
def test_wheel_has_the_jar(tmp_path: Path) -> None:
    assert jar.main() == 0
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--build-constraint", "constraints.txt"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), "."], cwd=jar.ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as found:
        assert found.read("replitree/spark/jars/replitree-spark.jar") == JAR.read_bytes()
