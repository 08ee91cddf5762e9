"""A supervised program ends with its owner, whatever way that ends."""

from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import replitree
from replitree.coordination.supervise import Supervised
from tests.coordination.waiting import eventually

pytestmark = pytest.mark.system

SLEEPER = [sys.executable, "-I", "-S", "-c", "import sys, signal; print('up', flush=True); signal.pause()"]
STUBBORN = [
    sys.executable, "-I", "-S", "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()",
]  # fmt: skip

OWNER = """
import os, pathlib, signal, sys
from replitree.coordination.supervise import Supervised
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored, when the tests run under nohup
program = Supervised({command!r}, pathlib.Path({log!r}))
{then}
print(program.pid, flush=True)
sys.stdin.read()
"""


def alive(pid: int) -> bool:
    """Say whether a process runs; one that ended and that nobody has asked about yet does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return sys.platform != "linux"
    return status.rpartition(")")[2].split()[0] not in "ZX"


def start(command: list[str], log: Path) -> Supervised:
    program = Supervised(command, log)
    eventually(lambda: b"up" in log.read_bytes(), "the program's first words")
    return program


def start_owner(tmp_path: Path, then: str = "") -> tuple[subprocess.Popen[str], int]:
    """Start another process that owns a program; return it and the program's process id."""
    log = tmp_path / "log"
    code = OWNER.format(command=SLEEPER, log=str(log), then=then)
    environment = {**os.environ, "PYTHONPATH": str(Path(replitree.__path__[0]).parent)}
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    eventually(lambda: b"up" in log.read_bytes(), "the program's first words")
    return owner, pid


def finish(owner: subprocess.Popen[str]) -> None:
    owner.communicate(timeout=10)


def test_terminate_kill_and_wait(tmp_path: Path) -> None:
    program = start(SLEEPER, tmp_path / "log")
    assert program.poll() is None
    assert program.wait(0.0) is None
    program.terminate()
    assert program.wait(10.0) == 128 + signal.SIGTERM
    assert program.poll() == 128 + signal.SIGTERM
    assert not alive(program.pid)
    program.kill()  # harmless afterwards


def test_a_program_that_does_not_want_to_end_is_killed(tmp_path: Path) -> None:
    program = start(STUBBORN, tmp_path / "log")
    program.terminate()
    assert program.wait(0.3) is None
    program.kill()
    assert program.wait(10.0) == 128 + signal.SIGKILL


def test_the_exit_code_is_the_programs_own(tmp_path: Path) -> None:
    program = Supervised([sys.executable, "-c", "raise SystemExit(7)"], tmp_path / "log")
    assert program.wait(10.0) == 7


def test_a_program_that_is_seen_to_have_ended_leaves_no_pipe(tmp_path: Path) -> None:
    programs = [Supervised(["true"], tmp_path / "log")]
    eventually(lambda: programs[0].poll() is not None, "its end")
    programs.clear()  # a pipe that is still open is an error here
    gc.collect()


def test_a_program_that_is_not_there_ends_at_once_and_says_so(tmp_path: Path) -> None:
    program = Supervised([str(tmp_path / "no-such-program")], tmp_path / "log")
    assert program.wait(10.0) == 127
    assert "no-such-program" in (tmp_path / "log").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_the_program_ends_when_its_owner_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    owner, pid = start_owner(tmp_path)
    assert alive(pid)
    owner.send_signal(number)
    eventually(lambda: not alive(pid), "the end of the program")
    finish(owner)


def test_the_program_ends_when_its_owner_ends(tmp_path: Path) -> None:
    owner, pid = start_owner(tmp_path)
    finish(owner)
    eventually(lambda: not alive(pid), "the end of the program")


def test_the_program_ends_with_its_owner_though_a_fork_of_the_owner_lives_on(tmp_path: Path) -> None:
    fork = (
        "child = os.fork()\nif child == 0:\n    os.close(0); os.close(1); os.close(2); import signal; signal.pause()\n"
    )
    owner, pid = start_owner(tmp_path, fork + "open(" + repr(str(tmp_path / "fork")) + ", 'w').write(str(child))")
    fork_pid = int((tmp_path / "fork").read_text())
    owner.kill()
    eventually(lambda: not alive(pid), "the end of the program")
    assert alive(fork_pid)
    os.kill(fork_pid, signal.SIGKILL)
    finish(owner)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a program that its parent died")
def test_the_program_ends_when_its_warden_is_killed(tmp_path: Path) -> None:
    program = start(SLEEPER, tmp_path / "log")
    warden = int(Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(warden, signal.SIGKILL)
    eventually(lambda: not alive(program.pid), "the end of the program")
    assert program.wait(10.0) is not None


def test_the_program_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    """The kernel's own signal would come with the end of the thread."""
    started: list[Supervised] = []
    thread = threading.Thread(target=lambda: started.append(start(SLEEPER, tmp_path / "log")))
    thread.start()
    thread.join()
    assert started[0].wait(1.2) is None  # longer than the warden takes between two looks
    started[0].terminate()
    assert started[0].wait(10.0) is not None


def test_a_signal_from_the_terminal_does_not_reach_the_program(tmp_path: Path) -> None:
    program = start(SLEEPER, tmp_path / "log")
    assert os.getsid(program.pid) != os.getsid(0)
    program.kill()
    program.wait(10.0)


def test_log_is_rotated_and_the_oldest_output_goes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = "import sys\nfor n in range(100): sys.stdout.write(f'{n:099}\\n'); sys.stdout.flush()\n"
    program = Supervised([sys.executable, "-c", lines], log, log_bytes_max=1000, log_files=3)
    assert program.wait(20) == 0
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["log", "log.1", "log.2"]
    assert all(0 < file.stat().st_size <= 1000 for file in files)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    kept = [int(line) for file in reversed(files) for line in file.read_text().splitlines()]
    assert kept == list(range(kept[0], 100))
    assert len(kept) > 10


def test_one_log_file_begins_anew_when_it_is_full(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 5000)
    program = Supervised([sys.executable, "-c", "print('last words')"], log, log_bytes_max=1000, log_files=1)
    assert program.wait(20) == 0
    assert [file.name for file in tmp_path.iterdir()] == ["log"]
    assert log.read_text() == "last words\n"


def test_program_goes_on_when_its_log_can_not_be_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    (tmp_path / "log.1").mkdir()  # nothing can be renamed to this
    (tmp_path / "log.1" / "file").touch()
    lines = "import sys\nfor n in range(100): sys.stderr.write('x' * 99 + '\\n')\nraise SystemExit(3)"
    program = Supervised([sys.executable, "-c", lines], log, log_bytes_max=1000, log_files=2)
    assert program.wait(20) == 3
    assert 0 < log.stat().st_size <= 1000
