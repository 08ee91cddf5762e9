"""A program that can't outlive the process that started it, however that one ends.

``Supervised`` starts this very file as a small second process, the *warden*, and the warden starts the program.  Three facts
hold the program to its owner, because no single one is enough:

1. *A pipe.*  The warden reads its standard input, whose other end only the owner has.  It ends when the owner ends, by
   SIGKILL too.  (Not enough: a process that the owner forked holds a copy of that end.)
2. *The parent's id.*  Every `LOOK_S` seconds the warden looks whether it is still the owner's child.
3. *The kernel.*  The program is killed when the warden dies (``PR_SET_PDEATHSIG``, Linux).  The owner can't use this by
   itself: the signal comes when the *thread* that forked ends, not the process, and asking for it between fork and exec
   of a process with threads may deadlock.  The warden has one thread and nothing to lose.

The program gets a session of its own, so that Ctrl-C in a terminal reaches the owner alone, which then stops it in order.
The program's output goes through a pipe to the warden, which appends it to the log file.  The warden is the only writer, so it
rotates the file without the program's help, whatever the program is: at `log_bytes_max` bytes ``x.log`` becomes ``x.log.1``,
``x.log.1`` becomes ``x.log.2``, and so on up to `log_files` files in all.  A disk that takes no more loses output; it does not
stop the program.  Output that a killed warden has not read yet is lost.

File descriptors given as `keep` stay open in warden and program: a file lock on one of them is held until both are gone.

Absent on purpose: restarts, and anything of replitree: the warden runs under ``python -I -S``, starts in 20 ms and imports
nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

TYPE_CHECKING = False  # `typing` itself would double the warden's start
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

LOOK_S = 0.5
"""How often the warden looks whether its owner is still its parent, in seconds."""

LOG_BYTES_MAX = 64 << 20
"""Size of a log file from which on it is rotated."""

LOG_FILES = 5
"""Log files that are kept, with the one that is being written."""

_READ_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
_TERMINATE, _KILL = b"t", b"k"


class Supervised:
    """A running program, bound to the life of this process.

    Parameters
    ----------
    command
        The program and its arguments.
    log
        Its output is appended to this file.
    log_bytes_max, log_files
        When the file is rotated, and how many of them are kept.
    keep
        File descriptors that warden and program inherit.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        keep: Sequence[int] = (),
        *,
        log_bytes_max: int = LOG_BYTES_MAX,
        log_files: int = LOG_FILES,
    ) -> None:
        import subprocess

        from replitree import private

        with private.open_file(log, "ab") as output:
            mode = os.fstat(output.fileno()).st_mode & 0o777
            limits = (str(log_bytes_max), str(log_files), str(mode))
            self._warden: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(log.absolute()), *limits, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                pass_fds=tuple(keep),
                start_new_session=True,
                umask=private.PRIVATE_UMASK,
                bufsize=0,
            )
        assert self._warden.stdout is not None
        self.pid = int(self._warden.stdout.readline() or 0)
        """Process id of the program itself; 0 when it could not even be forked."""

    def poll(self) -> int | None:
        """Return None while it runs, then its exit code (128 + n when signal n ended it)."""
        code = self._warden.poll()
        if code is not None:
            for pipe in filter(None, (self._warden.stdin, self._warden.stdout)):
                # A program that ends by itself leaves no open pipes behind in its owner.
                with contextlib.suppress(OSError):
                    pipe.close()
        return code

    def terminate(self) -> None:
        """Ask the program to end (SIGTERM)."""
        self._send(_TERMINATE)

    def kill(self) -> None:
        """End the program at once (SIGKILL)."""
        self._send(_KILL)

    def wait(self, timeout_s: float) -> int | None:
        """Wait until the program ended and return its exit code, or None when it still runs after `timeout_s`."""
        import subprocess

        with contextlib.suppress(subprocess.TimeoutExpired):
            self._warden.wait(timeout_s)
        return self.poll()

    def _send(self, command: bytes) -> None:
        assert self._warden.stdin is not None
        # The warden has ended by itself, which is what was wanted.
        with contextlib.suppress(OSError, ValueError):
            self._warden.stdin.write(command)


# --- the warden ---------------------------------------------------------------------------------------------------------


class _Log:
    """The log file of a program: written by the warden alone, and rotated by it."""

    def __init__(self, path: str, bytes_max: int, files: int, mode: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._files = files
        self._mode = mode
        self._output = -1

    def write(self, data: bytes) -> None:
        """Append output, whole lines to a file if they fit; what the disk does not take is lost."""
        with contextlib.suppress(OSError):
            while data:
                if self._output < 0:
                    self._open()
                size = os.fstat(self._output).st_size
                end = len(data)
                if size + end > self._bytes_max:
                    # A line is kept in one file, unless it is longer than a file may be.
                    end = data.rfind(b"\n", 0, max(0, self._bytes_max - size)) + 1
                if not end and size:
                    # The file is full: those before it move on, and it begins anew.
                    os.close(self._output)
                    self._output = -1
                    for number in range(self._files - 1, 0, -1):
                        source = f"{self._path}.{number - 1}" if number > 1 else self._path
                        with contextlib.suppress(OSError):
                            os.replace(source, f"{self._path}.{number}")  # noqa: PTH105 - `pathlib` would double the warden's start
                    self._open()
                    # It is the only file, or could not be renamed: it is bounded all the same.
                    if os.fstat(self._output).st_size:
                        os.truncate(self._output, 0)
                    continue
                written = os.write(self._output, data[: end or self._bytes_max])
                data = data[written:]

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._output = os.open(self._path, flags, self._mode)
        # The umask may have taken bits: readers of the group need them.
        os.fchmod(self._output, self._mode)


def _main(owner: int, log: _Log, command: list[str]) -> int:
    """Run `command` until it ends or the owner is gone; return its exit code."""
    woken, wake = os.pipe()
    output, written = os.pipe()
    # The warden reads what there is: a program that writes half a line must not hold it up.
    os.set_blocking(output, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    # A handler that does nothing: the arrival of the signal wakes the loop.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    warden = os.getpid()
    program = os.fork()
    if program == 0:
        _become(command, warden, written)
    # The program's copy is the only one left: the end of its output is the end of the program and its children.
    os.close(written)
    os.write(1, b"%d\n" % program)
    ending = is_silent = False
    while True:
        listened = [woken, *([] if ending else [0]), *([] if is_silent else [output])]
        ready = select.select(listened, [], [], LOOK_S)[0]
        if woken in ready:
            # Several signals may have come; `waitpid` below tells which child ended.
            os.read(woken, 64)
        if output in ready:
            is_silent = not _pump(output, log)  # the end: every process that could write has closed it
        finished, status = os.waitpid(program, os.WNOHANG)
        if finished:
            # What the program wrote before it ended is still in the pipe.
            while _pump(output, log):
                pass
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if 0 in ready:
            order = os.read(0, 1)
            os.kill(program, signal.SIGTERM if order == _TERMINATE else signal.SIGKILL)
            # An empty read is the owner's end: no order comes any more.
            ending = not order
        elif os.getppid() != owner:
            os.kill(program, signal.SIGKILL)


def _pump(output: int, log: _Log) -> bool:
    """Append to the log what has come; return whether there was something."""
    try:
        data = os.read(output, _READ_BYTES)
    except BlockingIOError:
        return False
    log.write(data)
    return bool(data)


def _become(command: list[str], warden: int, output: int) -> None:
    """Turn this process, just forked by the warden, into the program."""
    try:
        if sys.platform == "linux":
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            # The warden died before `prctl`: the kernel sends no signal for that.
            if os.getppid() != warden:
                os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Python ignores it, and what is ignored stays so in the program.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execv(command[0], command)  # noqa: S606  # the command is the owner's, as it stands; no shell is near
    except BaseException as error:  # noqa: BLE001  # whatever it is, two processes must not run the warden's loop
        os.write(2, f"{command[0]}: {error}\n".encode())
    os._exit(127)


if __name__ == "__main__":
    _owner, _path, *_limits = sys.argv[1:6]
    sys.exit(_main(int(_owner), _Log(_path, *map(int, _limits)), sys.argv[6:]))
