"""A running cluster is recorded, and what it did is replayed on the packed models; a trace that was changed is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from replitree.client.cluster import LocalCluster
from replitree.coordination.trace import CommitEnded, CommitSent, Line, Told
from replitree.errors import BadInput, ReplitreeError
from replitree_published.bridge.report import Bridged, bridge_traces
from tests.waiting import wait_for

pytestmark = pytest.mark.system

SETTINGS = {
    "min_replicated_logs_to_keep": 2,
    "max_replicated_logs_to_keep": 6,
    "clean_log_delay_s": 0.2,
    "clean_log_delay_random_s": 0.1,
}
"""The log is cleaned often."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of inserts, a merge, the death of a replica that comes back, and inserts with a quorum."""
    folder = tmp_path_factory.mktemp("traced")
    with LocalCluster(
        folder / "c", 3, durable=False, settings={**SETTINGS, "trace": str(folder / "traces")}
    ) as cluster:
        table = cluster.create_table("t", "k bigint not null, s string", order_by="k", partition_by="s")
        for key in range(6):
            table.insert({"k": [key], "s": ["smith"]}, replica=f"r{1 + key % 3}")
        assert table.optimize().merges
        # A commit of which r1 never hears would be a doubt in its trace, and what the tests change is told otherwise then.
        wait_for(lambda: all(each.lag == each.queue == 0 for each in table.status().replicas), "nobody is at work")
        cluster.kill("r1")
        for key in range(6, 16):
            table.insert({"k": [key], "s": ["smith"]}, replica="r2", quorum=2, timeout_s=60.0)
        assert table.delete("k = 3 and s = 'smith'").finished
        cluster.start("r1")
        first = table.replica("r1")
        wait_for(lambda: answered(lambda: first.to_arrow(level="linearizable").num_rows) == 15, "r1 is back", 60.0)
        assert table.insert({"k": [16], "s": ["smith"]}, replica="r1", quorum=3, timeout_s=60.0).settled is not None
        assert table.insert({"k": [17], "s": ["smith"]}, replica="r2").index is not None
    return folder / "traces"


def answered(ask: Callable[[], int]) -> int:
    """Return what a replica answers, -1 while it does not."""
    try:
        return ask()
    except ReplitreeError:
        return -1


def test_what_a_cluster_did_has_a_way(traces: Path) -> None:
    found = bridge_traces(traces)
    assert (found.violations, found.undecided) == ([], "")
    cleaned = {f"cleaning {action}" for action in ("Insert", "Execute", "Look", "Remove", "Join")}
    settled = {f"quorum {action}" for action in ("Insert", "Settle", "Acknowledge", "Execute")}
    changed = {f"replication {action}" for action in ("Insert", "Mutate", "Bring", "Execute")}
    assert cleaned | settled | changed <= {*found.taken}
    assert found.states > 100


def test_the_command_says_so(traces: Path) -> None:
    command = [sys.executable, "-m", "replitree.cli.main", "verify", "bridge", "--trace", str(traces), "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    onto = "mended/truncate-log, mended/quorum-queues and mended/replication-queues"
    assert json.loads(ran.stdout)["onto"] == onto


def test_no_value_of_a_row_is_in_a_trace(traces: Path) -> None:
    files = list(traces.iterdir())
    assert len(files) == 4, "one for each process"
    assert not any(b"smith" in file.read_bytes() for file in files)


# --- changed traces ----------------------------------------------------------------------------------------------------------


@dataclass
class Copy:
    """Traces that are changed: the lines of each file."""

    folder: Path
    files: dict[str, list[Line]]

    @classmethod
    def of(cls, traces: Path, folder: Path) -> Copy:
        read = {file.name: file.read_bytes().splitlines() for file in traces.iterdir()}
        return cls(folder, {name: [msgspec.json.decode(line, type=Line) for line in raw] for name, raw in read.items()})

    def appends(self, kind: str) -> list[tuple[str, int, int]]:
        """Return the commits that append entries of a kind: file, number of the commit, index."""
        found = []
        for name, lines in self.files.items():
            ended = {line.number: line for line in lines if isinstance(line, CommitEnded) and line.outcome == "applied"}
            for sent in (line for line in lines if isinstance(line, CommitSent) and line.number in ended):
                if any(f'"kind":"{kind}"' in step.value for step in sent.steps if step.path.endswith("/log/log-")):
                    paths = [path for path in ended[sent.number].created if "/log/log-" in path]
                    found.append((name, sent.number, int(paths[0][-10:])))
        return sorted(found, key=lambda each: each[2])

    def take_out(self, name: str, number: int) -> None:
        """Take a commit out, and number the others as if it had never been."""
        left = [line for line in self.files[name] if getattr(line, "number", -1) != number]
        self.files[name] = [
            msgspec.structs.replace(line, number=line.number - 1)
            if isinstance(line, CommitSent | CommitEnded) and line.number > number
            else line
            for line in left
        ]

    def take_out_last_answers(self, count: int) -> None:
        """Take out the last answers to r1's registrations of parts before it was killed."""
        killed = min(
            (name for name in self.files if name.startswith("r1-")), key=lambda name: int(name.split("-")[-1][:-6])
        )
        lines = self.files[killed]
        registered = {
            line.number
            for line in lines
            if isinstance(line, CommitSent) and any("/parts/" in step.path for step in line.steps)
        }
        answers = [
            line
            for line in lines
            if isinstance(line, CommitEnded) and line.outcome == "applied" and line.number in registered
        ]
        for answer in answers[-count:]:
            lines.remove(answer)

    def change_told(self, index: int, **changes: int) -> None:
        for lines in self.files.values():
            for at, line in enumerate(lines):
                if isinstance(line, Told) and line.index == index:
                    lines[at] = msgspec.structs.replace(line, **changes)

    def replayed(self) -> Bridged:
        self.folder.mkdir(exist_ok=True)
        for name, lines in self.files.items():
            (self.folder / name).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        return bridge_traces(self.folder)

    def what_is_wrong(self) -> str:
        """Replay; return the first thing that is wrong."""
        violation, *_ = self.replayed().violations
        assert isinstance(violation["what"], str)
        return violation["what"]


@pytest.fixture
def copy(traces: Path, tmp_path: Path) -> Copy:
    return Copy.of(traces, tmp_path / "copy")


def test_an_acknowledged_insert_whose_entry_was_taken_out_is_missed(copy: Copy) -> None:
    name, number, index = copy.appends("get")[2]
    copy.take_out(name, number)
    what = copy.what_is_wrong()
    heard = f"TRACE: a client heard that its insert is at {index}, and no trace has an insert there"
    pulled = f"BRIDGE: mended/truncate-log has no way from [log of {index},"
    assert heard in what or pulled in what, "its client hears of it first, or somebody pulls it"
    assert ".jsonl, line " in what


def test_the_last_insert_whose_entry_was_taken_out_is_missed_by_its_client(copy: Copy) -> None:
    name, number, index = copy.appends("get")[-1]
    copy.take_out(name, number)
    for lines in copy.files.values():  # nor did anybody pull it
        gone = {each.number for each in lines if isinstance(each, CommitSent) and f"queue-{index:010d}" in str(each)}
        lines[:] = [line for line in lines if getattr(line, "number", -1) not in gone]
        fresh = {line.number: at for at, line in enumerate(each for each in lines if isinstance(each, CommitSent))}
        lines[:] = [
            msgspec.structs.replace(line, number=fresh[line.number])
            if isinstance(line, CommitSent | CommitEnded)
            else line
            for line in lines
        ]
    assert f"its insert is at {index}, and no trace has an insert there" in copy.what_is_wrong()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_answers_that_a_killed_process_did_not_live_to_write_down_are_found_out(copy: Copy, count: int) -> None:
    copy.take_out_last_answers(count)
    found = copy.replayed()
    assert (found.violations, found.undecided) == ([], "")


def test_what_is_wrong_is_told_though_answers_are_missing(copy: Copy) -> None:
    copy.take_out_last_answers(3)
    told = next(line for lines in copy.files.values() for line in lines if isinstance(line, Told) and line.settled)
    assert told.settled is not None
    copy.change_told(told.index, settled=told.settled + 1)
    assert f"heard that {told.index} was settled at {told.settled + 1}; no trace has that there" in copy.what_is_wrong()


def test_lines_that_were_taken_out_leave_a_gap(copy: Copy) -> None:
    name = next(iter(copy.files))
    del copy.files[name][5]
    assert "taken out" in copy.what_is_wrong()


def test_an_answer_before_the_quorum_has_no_way(copy: Copy) -> None:
    told = next(line for lines in copy.files.values() for line in lines if isinstance(line, Told) and line.settled)
    for lines in copy.files.values():
        ended = [
            line
            for line in lines
            if isinstance(line, CommitEnded) and any(f"log-{told.index:010d}" in p for p in line.created)
        ]
        if ended:
            lines.remove(told)
            lines.insert(lines.index(ended[0]) + 1, msgspec.structs.replace(told, zxid=ended[0].zxid, settled=None))
    assert "mended/quorum-queues has no way from [insert 0 of" in copy.what_is_wrong()


def test_an_answer_with_another_end_is_refused(copy: Copy) -> None:
    told = next(line for lines in copy.files.values() for line in lines if isinstance(line, Told) and line.settled)
    assert told.settled is not None
    copy.change_told(told.index, settled=told.settled + 1)
    assert f"heard that {told.index} was settled at {told.settled + 1}; no trace has that there" in copy.what_is_wrong()


def test_a_commit_that_comes_too_early_can_not_be_done(copy: Copy) -> None:
    for lines in copy.files.values():
        for at, line in enumerate(lines):
            if (
                isinstance(line, CommitEnded)
                and line.outcome == "applied"
                and any("/log-" in path for path in line.created)
            ):
                lines[at] = msgspec.structs.replace(line, zxid=1)
                assert copy.what_is_wrong().startswith("TRACE: ")
                return


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"kind":"head","replica":"r1","format":2}\n', "a trace of format 2 begins"),
        ("{}\n", "line 1 is not of a trace"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "r1.jsonl").write_text(text)
    with pytest.raises(BadInput, match=said):
        bridge_traces(tmp_path)


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no traces"):
        bridge_traces(tmp_path)
