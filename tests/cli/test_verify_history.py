"""`verify history` judges a file and says so with its exit status."""

from __future__ import annotations

from pathlib import Path

from replitree.wire.history_format import Operation, encode_header, encode_line
from replitree_verify.histories.search import Limits
from tests.cli.conftest import Run
from tests.verify.histories.known import A, insert, read


def write(folder: Path, *operations: Operation) -> str:
    file = folder / "history.jsonl"
    file.write_bytes(encode_header("boot") + b"".join(map(encode_line, operations)))
    return str(file)


def test_a_fine_history_ends_with_0(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, insert("x", 0, 10, A), read("y", 20, 30, A))
    ran = run("verify", "history", file, "--json")
    assert (ran.status, ran.json["verdict"], ran.json["operations"]) == (0, "fine", 2)
    assert run("verify", "history", file).out.rstrip().endswith("fine")


def test_an_anomaly_ends_with_1_and_is_drawn(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, insert("x", 0, 10, A), read("y", 20, 30, ()))
    report = tmp_path / "report.html"
    ran = run("verify", "history", file, "--json", "--report", str(report))
    assert (ran.status, ran.json["counts"]) == (1, {"L1": 1})
    assert report.read_text().count("<svg") == 1
    assert "stale_read (L1)" in run("verify", "history", file).out
    assert run("verify", "history", file, "--level", "sequential").status == 0


def test_what_can_not_be_decided_ends_with_3(run: Run, tmp_path: Path) -> None:
    inserts = [insert(f"i{k}", 0, 1000, ((k, k),)) for k in range(Limits().operations)]
    reads = [read("r", 1, 999, (), scope=((0, 5),))]
    ran = run("verify", "history", write(tmp_path, *inserts, *reads), "--json")
    assert (ran.status, ran.json["verdict"]) == (3, "undecided")
    assert "given up" in ran.json["undecided"][0]


def test_a_wrong_file_and_a_wrong_place_for_the_report_are_refused(run: Run, tmp_path: Path) -> None:
    assert "can't be read" in run("verify", "history", "nowhere.jsonl", "--json").error["message"]
    file = write(tmp_path, insert("x", 0, 10, A))
    ran = run("verify", "history", file, "--report", str(tmp_path / "no" / "report.html"), "--json")
    assert ran.status == 2
    assert "can't be written" in ran.error["message"]
