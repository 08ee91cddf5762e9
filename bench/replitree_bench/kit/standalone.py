"""A standalone cluster whose executors can't see the replicas' folders: a master and workers as processes.

Everything comes from PySpark's own jars.  The folder that is hidden belongs to another user.  As root, workers run without the
capabilities with which root opens such a folder; as any other user, in a mount namespace of their own in which it is empty.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from replitree.errors import ReplitreeError
from replitree.java import java_home

OTHER_USER = 65534
"""Number of a user that runs none of these processes; Linux keeps it for users without a name."""

ENDS_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
AS_ORDINARY_USER = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--")
IN_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"

START_S_MAX = 300.0
"""How long the master may take until it listens, in seconds: minutes where other processes fill the cores."""

LOOK_S = 0.02


def way_to_hide(folder: Path) -> tuple[str, ...]:
    """Return the first words of a command that does not see a folder.

    Raises
    ------
    ReplitreeError
        This kernel can't hide it from a command.
    """
    way: tuple[str, ...] = (*IN_NAMESPACE, str(folder))
    if os.geteuid() == 0:
        os.chown(folder, OTHER_USER, OTHER_USER)
        way = AS_ORDINARY_USER
    folder.chmod(0o700)
    (folder / "seen").touch()
    looked = subprocess.run([*way, "ls", str(folder / "seen")], check=False, capture_output=True, text=True)
    # Of a command that could not be run nothing is known; `ls` says 2 of what it does not see.
    if looked.returncode != 2:
        raise ReplitreeError("this kernel can't hide a folder from a process: neither setpriv nor unshare does it")
    return way


class StandaloneSpark:
    """A master and workers; a context manager that ends all of them.

    Parameters
    ----------
    way
        The first words of a command that does not see some folder: `way_to_hide`.
    workers
        How many, each with one core.
    java
        Options of the Java of master and workers.
    """

    def __init__(self, way: Sequence[str], workers: int = 2, java: Sequence[str] = ()) -> None:
        self._way = tuple(way)
        self._folder = tempfile.TemporaryDirectory(prefix="replitree-standalone-")
        self.folder = Path(self._folder.name)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers = workers
        self._java = tuple(java)
        self.master = ""

    def __enter__(self) -> Self:
        log = self._start("master", [MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"])
        end = time.monotonic() + START_S_MAX
        while not (master := said(log, "Starting Spark master at ")):
            if time.monotonic() > end:
                raise ReplitreeError(f"Spark's master does not listen after {START_S_MAX:g} s: {log} may say why")
            time.sleep(LOOK_S)
        self.master = master
        # Not waited for: the first job waits until a worker has an executor for it.
        for number in range(self._workers):
            self.add_worker(number)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()
        for process in self._processes:
            process.wait()
        self._folder.cleanup()

    def add_worker(self, number: int, *, sees: bool = False) -> subprocess.Popen[bytes]:
        """Start a worker, as a process that does not see the hidden folder, or does."""
        work = self.folder / f"work-{number}"
        options = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir"]
        self._start(f"worker-{number}", [WORKER, *options, str(work), self.master], () if sees else self._way)
        return self._processes[-1]

    def replace_the_killed(self) -> int:
        """Start a worker for each process that a test has killed; return how many these are."""
        killed = [process for process in self._processes if process.poll() is not None]
        for process in killed:
            self._processes.remove(process)
            self.add_worker(len(self._processes) + 100)
        return len(killed)

    def _start(self, name: str, words: list[str], way: tuple[str, ...] = ()) -> Path:
        import pyspark

        home, jars = java_home(), Path(pyspark.__file__).parent / "jars"
        java = [str(home / "bin" / "java"), "-Xmx256m", *self._java]
        # As Spark's own scripts say it, too: Java takes the archive of classes only with the class path that it was made with.
        path = f"{jars.parent / 'conf'}:{next(jars.glob('slf4j-api-*.jar'))}:{jars}/*"
        command = [*ENDS_WITH_PARENT, *way, *java, "-cp", path, *words]
        scala = next(jars.glob("scala-library-*.jar")).stem.removeprefix("scala-library-")
        environment = os.environ | {
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(jars.parent),
            # As Spark's own scripts say it: a worker that starts executors looks for it.
            "SPARK_SCALA_VERSION": scala.rpartition(".")[0],
            "SPARK_LOCAL_DIRS": str(self.folder),
            "HOME": str(self.folder),
            # Nothing of the driver's way to the cluster: executors have what their tasks bring.
            "REPLITREE_TOKEN": "",
        }
        log = self.folder / f"{name}.log"
        with log.open("wb") as out:
            self._processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=self.folder))
        return log


def said(log: Path, words: str) -> str:
    """Return what follows some words in a log; an empty text when they are not there yet."""
    _, found, rest = log.read_text(errors="replace").partition(words)
    line, end, _ = rest.partition("\n")
    return line.split()[0] if found and end else ""


__all__ = ["ENDS_WITH_PARENT", "StandaloneSpark", "said", "way_to_hide"]
