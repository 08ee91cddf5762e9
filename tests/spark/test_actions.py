"""Which calls of the JVM are sent again: conversations with a gateway's client that never reaches a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j import java_gateway  # type: ignore[import-untyped]  # it has no types
from py4j.java_gateway import GatewayClient, GatewayProperty  # type: ignore[import-untyped]  # as above
from py4j.protocol import Py4JError, get_return_value  # type: ignore[import-untyped]  # as above
from pyspark.errors import PySparkException
from pyspark.sql.classic.dataframe import DataFrame
from typing_extensions import override

from replitree.client.read.snapshot import SoundFile
from replitree.errors import CorruptPart
from replitree.spark.session import actions, damage_reports
from replitree.spark.session.actions import READS, ActionFailed
from replitree.storage.files.durable import file_checksum
from replitree.storage.parts.manifest import FileEntry
from replitree.storage.parts.verified import CheckedFile

DATASET = "org.apache.spark.sql.classic.Dataset"
FRAME = "o1"


class Client(GatewayClient):  # type: ignore[misc]  # it has no types
    """Answers from a script, and notes which methods were called."""

    def __init__(self, answers: list[str], story: str, kind: str = DATASET) -> None:
        super().__init__(gateway_property=GatewayProperty(False, None, False))
        self.converters: list[object] = []
        self.answers, self.story, self.kind = answers, story, kind
        self.called: list[tuple[str, str]] = []

    @override
    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> str:
        if not command.startswith("c\n"):
            return "yv"
        _, target, name, _ = command.split("\n", 3)
        fixed = {
            "exceptionString": f"ys{self.story}",
            "getClass": "yro8",
            "getName": f"ys{self.kind}",
            "filter": "yro9",
        }
        if name not in fixed:
            self.called.append((target, name))
        return fixed.get(name) or self.answers.pop(0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A data file of a part, which a frame reads; its replica repairs it when it is reported."""
    path = tmp_path / "data-0.parquet"
    path.write_bytes(b"good")
    entry = FileEntry(path.name, 1, 4, file_checksum(path))
    source = SimpleNamespace(report=lambda _: path.write_bytes(b"good"))
    damage_reports.note_files(cast("Any", source), [SoundFile(path, "p_1_1_0", CheckedFile(path, entry))])
    path.write_bytes(b"bad!")
    return path


@pytest.fixture(autouse=True)
def _uninstalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take away at the end what `install` has given the class of all frames."""
    monkeypatch.setattr(
        java_gateway, "get_return_value", get_return_value
    )  # a session of another file needs its JVM for it
    yield
    if "_collect_as_arrow" in vars(DataFrame):
        del DataFrame._collect_as_arrow  # noqa: SLF001 - `install` replaces it: there is no other way


def call(client: Client, name: str, target: str = FRAME) -> str:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(_gateway_client=client)))
    actions.install(spark)
    actions.install(spark)  # again it does nothing
    answer = client.send_command(f"c\n{target}\n{name}\ne\n")
    assert isinstance(answer, str)
    return answer


@pytest.mark.parametrize("name", sorted(READS[DATASET]))
def test_an_action_that_reads_is_sent_again_to_a_new_frame(path: Path, name: str) -> None:
    client = Client(["xro5", "yi42"], f"ChecksumException: {path}")
    assert call(client, name) == "yi42"
    assert client.called == [(FRAME, name), ("o9", name)]
    assert path.read_bytes() == b"good"


@pytest.mark.parametrize("kind", sorted(set(READS) - {DATASET}))
def test_other_objects_make_new_frames_by_themselves(path: Path, kind: str) -> None:
    (name, *_) = sorted(READS[kind])
    client = Client(["xro5", "yi42"], f"ChecksumException: {path}", kind)
    assert call(client, name) == "yi42"
    assert client.called == [(FRAME, name)] * 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("save", "org.apache.spark.sql.classic.DataFrameWriter"),
        ("insertInto", "org.apache.spark.sql.classic.DataFrameWriter"),
        ("append", "org.apache.spark.sql.classic.DataFrameWriterV2"),
        ("sql", "org.apache.spark.sql.classic.SparkSession"),
        ("collectAndServe", ""),
        ("getResult", "org.apache.spark.security.SocketAuthServer"),
        ("checkpoint", DATASET),
        ("count", "org.apache.spark.api.java.JavaRDD"),
    ],
)
def test_any_other_call_is_sent_once_and_its_error_says_what_to_do(path: Path, name: str, kind: str) -> None:
    client = Client(["xro5"], f"ChecksumException: {path}", kind)
    with pytest.raises(ActionFailed, match=r"part p_1_1_0.*not repeated by itself.*run it again") as failed:
        call(client, name)
    assert client.called == [(FRAME, name)]
    assert path.read_bytes() == b"good", "the part must be reported"
    assert isinstance(failed.value, CorruptPart)
    assert isinstance(failed.value, PySparkException)
    assert isinstance(failed.value.__cause__, Py4JError)


@pytest.mark.parametrize("answer", ["xro5", "xsno such method", "yi42", "x"])
def test_other_answers_pass_through(answer: str) -> None:
    client = Client([answer], "java.lang.ArithmeticException: / by zero")
    assert call(client, "count") == answer
    assert client.called == [(FRAME, "count")]


def test_another_error_of_a_repeated_action_is_returned(path: Path) -> None:
    client = Client(["xro5", "xsother"], f"ChecksumException: {path}")
    assert call(client, "count") == "xsother"


def test_what_fails_on_whole_files_is_not_repeated_for_ever(path: Path) -> None:
    client = Client(["xro5"] * 9, f"ChecksumException: {path}")
    with pytest.raises(ActionFailed, match=r"is whole again, and the action fails as before.*unpersist"):
        call(client, "count")
    assert len(client.called) == 2


def test_a_file_that_is_not_repaired_ends_the_action(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage_reports, "REPAIR_S_MAX", 0.1)
    (file,) = damage_reports.named_files(str(path))
    monkeypatch.setattr(file.source, "report", lambda _: True)
    client = Client(["xro5"], f"ChecksumException: {path}")
    with pytest.raises(ActionFailed, match="run: replitree doctor"):
        call(client, "count")
    assert len(client.called) == 1


def test_a_session_without_a_gateway_is_left_alone() -> None:
    actions.install(cast("Any", SimpleNamespace()))
