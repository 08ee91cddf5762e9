"""What clients write down: complete, in order, and readable whatever becomes of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from replitree.errors import BadInput, ReadOnly, StoreError
from replitree.wire.history_format import Operation
from replitree.wire.history_recorder import Recorder, clock
from replitree_verify.histories.judge import check
from replitree_verify.histories.reading import read_files


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def operations(file: Path) -> list[Operation]:
    """What was recorded."""
    history = read_files([file])
    return [history.operation(number) for number in range(len(history))]


def test_inserts_and_reads_are_written_down(file: Path) -> None:
    recorder = Recorder(file, name="c")
    with recorder.insert("t", [3, 1, 2], token="a", quorum=2) as asked:
        asked.settle(index=4, settled=6, replica="r1", holders=("r1", "r2"))
    with recorder.read("t", "linearizable", closing=True) as read:
        read.show([1, 2, 3], index=7, replica="r2")
    recorder.close()
    one, two = operations(file)
    assert (one.client, one.outcome, one.rows, one.index, one.settled) == ("c-1", "ok", ((1, 3),), 4, 6)
    assert (one.token, one.quorum, one.holders, one.replica) == ("a", 2, ("r1", "r2"), "r1")
    assert (two.kind, two.level, two.rows, two.index, two.replica, two.closing) == (
        "read",
        "linearizable",
        ((1, 3),),
        7,
        "r2",
        True,
    )
    assert one.call <= (one.answer or 0) <= two.call <= (two.answer or 0)
    assert check(read_files([file])).fine
    assert file.read_text().count("\n") == 4, "the insert has a line from before it was asked for"


def test_errors_say_what_is_certain(file: Path) -> None:
    recorder = Recorder(file)
    for number, error in enumerate((BadInput("no"), ReadOnly("no"), StoreError("?"), KeyboardInterrupt(), OSError())):
        with pytest.raises(type(error)), recorder.insert("t", [number]):
            raise error
    with pytest.raises(ReadOnly), recorder.read("t", "eventual"):
        raise ReadOnly("no")
    assert [each.outcome for each in operations(file)] == [
        "failed",
        "failed",
        "unknown",
        "unknown",
        "unknown",
        "failed",
    ]


def test_each_thread_is_a_client(file: Path) -> None:
    recorder = Recorder(file, name="p")

    def work(first: int) -> None:
        for number in range(first, first + 50):
            with recorder.insert("t", [number]):
                pass

    threads = [threading.Thread(target=work, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = operations(file)
    assert len(found) == 200
    assert {each.client for each in found} == {"p-1", "p-2", "p-3", "p-4"}


def test_a_client_that_is_killed_leaves_its_insert_behind_as_unknown(file: Path) -> None:
    program = (
        "import os, sys; from replitree.wire.history_recorder import Recorder\n"
        "with Recorder(sys.argv[1]).insert('t', [1, 2]): os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(file)], check=False)
    assert done.returncode == -9
    (insert,) = operations(file)
    assert (insert.outcome, insert.answer, insert.rows) == ("unknown", None, ((1, 2),))


def test_a_file_that_is_there_is_not_written_to(file: Path) -> None:
    Recorder(file).close()
    with pytest.raises(BadInput, match="is there already: name another file"):
        Recorder(file)
    with pytest.raises(BadInput, match="can't be made"):
        Recorder(file / "below")


def test_all_processes_of_a_machine_have_one_clock() -> None:
    program = "from replitree.wire.history_recorder import clock; print(clock())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == clock()


# --- one file of several processes ---


def test_recorders_append_to_one_file_and_the_first_makes_it(file: Path) -> None:
    one, two = Recorder(file, name="one", append=True), Recorder(file, name="two", append=True)
    for number, recorder in enumerate((one, two, one)):
        with recorder.insert("t", [number]):
            pass
    assert [each.client for each in operations(file)] == ["one-1", "two-1", "one-1"]


def test_half_a_line_of_a_killed_process_goes_with_the_next_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replitree.wire.history_recorder.HALF_LINE_BYTES", 16)
    recorder = Recorder(file, name="one")
    # As a process leaves it that was killed before it asked for anything.
    with recorder.insert("t", [1]), file.open("ab") as killed:
        killed.write(b'{"kind":"insert","client":"killed","table":"t","call":1')
    with Recorder(file, name="two", append=True).insert("t", [2]):
        pass
    assert [(each.client, each.outcome) for each in operations(file)] == [("one-1", "ok"), ("two-1", "ok")]


def test_a_file_of_another_run_of_the_machine_is_not_appended_to(file: Path) -> None:
    for text in ('{"format":"replitree-history","version":1,"clock":"another"}\n', "my diary\n"):
        file.write_text(text)
        with pytest.raises(BadInput, match="no history of this run of this machine"):
            Recorder(file, append=True)
        assert file.read_text() == text


def test_a_read_may_have_been_asked_for_before_it_was_known_what_it_is(file: Path) -> None:
    recorder = Recorder(file)
    with recorder.insert("t", [1]) as asked:
        asked.settle(index=0)
    with recorder.insert("t", [2]) as asked:
        asked.settle(index=1)
    call = operations(file)[0].answer
    late = Recorder(file, append=True)
    with late.read("t", "linearizable", call=call) as read:
        read.show([1], index=1)
    assert check(read_files([file])).fine
    # Asked for now it is stale.
    with late.read("t", "linearizable") as read:
        read.show([1], index=1)
    assert check(read_files([file])).counts["L1"] == 1
