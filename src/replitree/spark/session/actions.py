"""Actions of frames go on after damage: an action that only reads is sent to the JVM again when the file is whole again.

PySpark sends every call to the JVM through one object, the gateway's client.  `install` puts `_GatewaySender` in front of its
`send_command`.  A call that succeeds passes through it; of a call that fails it reads the error:

=============================  ===========================================================================================
the error                      what happens
=============================  ===========================================================================================
names no damaged file of a     nothing: PySpark gets the answer as it came
frame
of an action in `READS`        the file is reported, `damage_reports.await_whole` returns when its replica has fetched it
                               again, and the call is sent again, up to `REPEATS_MAX` times
of any other call              the same, but `ActionFailed` is raised then, and says that the action may be run again.  A write
                               may have written rows, and an iterator has returned some
=============================  ===========================================================================================

A frame keeps the plan that it was run with, and an adaptive plan keeps the failure of a stage: the same call of the same
frame would fail for ever.  So the call is sent again to a new frame with the same logical plan.

`toArrow` and `toPandas` receive their rows after the call has succeeded, from a thread of the JVM whose error comes last.
They are repeated around `DataFrame._collect_as_arrow`, the one method that both call.

All sessions of a process have the same gateway (`SparkContext._gateway`), so both are installed once, and `uninstall`
removes both.

Absent on purpose: Spark Connect, which has no gateway; queries that Python does not wait for, such as those of a stream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from py4j import java_gateway  # type: ignore[import-untyped]  # it has no types
from py4j.protocol import Py4JError, get_command_part  # type: ignore[import-untyped]  # as above
from pyspark.errors import PySparkException
from pyspark.sql.classic.dataframe import DataFrame

from replitree.client.read.snapshot import SoundFile
from replitree.errors import CorruptPart
from replitree.spark.session.damage_reports import (
    NotRepaired,
    WatchedFile,
    await_whole,
    damaged_files,
    note_files,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from replitree.client.read.snapshot import PartSource

REPEATS_MAX = 5
"""How often an action is repeated; each time another file was damaged."""

_FRAME = "org.apache.spark.sql.classic.Dataset"

READS: dict[str, frozenset[str]] = {
    # `collect`, `head`, `take`, `first`, `tail`, `toLocalIterator` and `rdd` before their first row, `show`, `repr`.
    _FRAME: frozenset(
        [
            "collectToPython",
            "tailToPython",
            "collectAsArrowToPython",
            "toPythonIterator",
            "javaToPython",
            "getRowsToPython",
            "count",
            "isEmpty",
            "showString",
            "htmlString",
            "describe",
            "summary",
            "transpose",
            "localCheckpoint",
        ]
    ),
    "org.apache.spark.sql.classic.DataFrameStatFunctions": frozenset(
        ["approxQuantile", "corr", "cov", "crosstab", "freqItems"]
    ),
    "org.apache.spark.sql.classic.RelationalGroupedDataset": frozenset({"pivot"}),
}
"""The actions of frames that write nothing, by their JVM class."""

_NAMES = frozenset().union(*READS.values())

_RESULT = "getResult"
"""The method of a server of rows that raises the error of the action whose rows it has sent."""

_CALL, _ERROR = "c\n", "xr"
"""How a call of a method begins in Py4J's protocol, and the answer of one that has raised an exception."""

_T = TypeVar("_T")


class ActionFailed(CorruptPart, PySparkException):
    """An action of a frame met a damaged file and did not go on by itself; the message says what to do.

    It is an error of Spark, too, so that programs that handle those handle it.

    Attributes
    ----------
    files
        The damaged files.
    is_whole
        Whether they are whole again, so that the action can be run again at once.
    """

    def __init__(self, message: str, files: Sequence[WatchedFile], *, is_whole: bool = False) -> None:
        super().__init__(message)
        self.files = tuple(files)
        self.is_whole = is_whole


def watch(spark: SparkSession, source: PartSource, files: Sequence[SoundFile]) -> None:
    """Let actions of a session go on after damage of files from now on.

    Parameters
    ----------
    source
        Knows the replica whose files they are.
    files
        What the JVM gets.
    """
    note_files(source, files)
    install(spark)


# --- installation -----------------------------------------------------------------------------------------------------------

_lock = threading.Lock()


def install(spark: SparkSession) -> None:
    """Repeat the reading actions of this process's sessions that meet damage, from now on.  Again it does nothing."""
    try:
        client = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]  # noqa: SLF001 - there is no other way
    except (AttributeError, PySparkException):
        # A session of Spark Connect has no gateway.
        return
    if "send_command" in vars(client):
        return
    with _lock:
        # Again under the lock: two sessions of a process have the same client.
        if "send_command" not in vars(client):
            client.send_command = _GatewaySender(client)
        if "_collect_as_arrow" not in vars(DataFrame):
            # On the class, where every caller finds it: a frame made from another one knows nothing of that.
            DataFrame._collect_as_arrow = _repeating(DataFrame._collect_as_arrow)  # type: ignore[method-assign]  # noqa: SLF001 - see above


def _repeating(collect: Callable[..., _T]) -> Callable[..., _T]:
    """Return `DataFrame._collect_as_arrow`, repeated when it meets damage."""

    @wraps(collect)
    def collect_again(self: DataFrame, *given: Any, **options: Any) -> _T:
        try:
            return collect(self, *given, **options)
        except ActionFailed as error:
            if not error.is_whole:
                raise
            # Without its frames, which keep the rows that have come: the repetition needs the memory.
            failed = error.with_traceback(None)
            failed.__context__ = None
        return _repeated(
            failed,
            lambda: collect(DataFrame(self._jdf.filter("true"), self.sparkSession), *given, **options),
        )

    return collect_again


# --- repeating --------------------------------------------------------------------------------------------------------------


def _repeated(failed: ActionFailed, again: Callable[[], _T]) -> _T:
    """Repeat an action that only reads, each time when the damaged files are whole again.

    Raises
    ------
    ActionFailed
        A file is not repaired, or what failed fails again although its files are whole.
    """
    whole: set[Path] = set()
    for _ in range(REPEATS_MAX):
        # A file that was whole before the last run is not what made it fail again.
        damaged = [file for file in failed.files if file.path not in whole]
        if not damaged:
            raise ActionFailed(
                f"{_names(failed.files)} was damaged and is whole again, and the action fails as before: Spark keeps the"
                " failure with a frame that is cached: call its unpersist(), and make the frame again",
                failed.files,
            ) from failed.__cause__
        _await(damaged, failed)
        whole.update(file.path for file in damaged)
        try:
            return again()
        except ActionFailed as error:
            failed = error
    raise ActionFailed(
        f"{_names(failed.files)} is damaged, and the {REPEATS_MAX} runs before met other damaged files: run replitree check"
        " of the table first",
        failed.files,
    ) from failed.__cause__


def _await(files: Sequence[WatchedFile], failed: ActionFailed) -> None:
    """Return when the damaged files of an action that has failed are whole; when they will not be, raise why."""
    try:
        await_whole(files)
    except NotRepaired as problem:
        raise ActionFailed(str(problem), failed.files) from failed.__cause__


class _GatewaySender:
    """Sends commands for a gateway's client, and looks at the calls that fail."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._send = client.send_command

    def __call__(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        answer = self._send(command, retry, binary)
        if binary or not answer.startswith(_ERROR) or not command.startswith(_CALL):
            return answer
        _, target, name, rest = command.split("\n", 3)
        failed = self._damage(answer, target, name)
        if failed is None:
            return answer
        kind = ""
        if name in _NAMES:
            with suppress(Py4JError, PySparkException):
                kind = str(self._call(target, "getClass").getName())
        # Only calls that read are sent again; a job that writes may have left something behind.
        if name not in READS.get(kind, ()):
            _await(failed.files, failed)
            raise failed
        return _repeated(failed, lambda: self._again(target, name, rest, is_frame=kind == _FRAME))

    def _again(self, target: str, name: str, rest: str, *, is_frame: bool) -> str:
        """Send a call again, of a frame to a new one that has its logical plan."""
        # A frame keeps the plan that it was run with, and an adaptive plan keeps the failure of a stage: the same call of the
        # same frame would fail for ever.
        frame = self._call(target, "filter", "true") if is_frame else None
        receiver = target if frame is None else frame._get_object_id()  # noqa: SLF001 - Py4J's name for it
        answer: str = self._send(f"{_CALL}{receiver}\n{name}\n{rest}")
        failed = self._damage(answer, receiver, name) if answer.startswith(_ERROR) else None
        if failed is not None:
            raise failed
        return answer

    def _damage(self, answer: str, target: str, name: str) -> ActionFailed | None:
        """Return the error of a call that has met damage.  None: it failed for another reason, or says nothing of a file."""
        # By the class itself: the answer names the exception object in the JVM, and not its text or its causes.
        story = self._send(f"{_CALL}z:org.apache.spark.util.Utils\nexceptionString\n{answer[1:]}\ne\n")
        text = str(java_gateway.get_return_value(story, self._client)) if story.startswith("y") else ""
        # Jobs whose tasks read files with Python say so in words of their own, and repeat by themselves.
        files = damaged_files(text, verify=name in _NAMES or name == _RESULT)
        if not files:
            return None
        failed = ActionFailed(
            f"Spark met a damaged file, which its replica has fetched again: {_names(files)}.  This action is not repeated by"
            " itself, because it may have written rows or returned some: run it again",
            files,
            is_whole=True,
        )
        # Also an error that is not raised here: the JVM's exception object is released with the Python error that refers to it.
        try:
            java_gateway.get_return_value(answer, self._client, target, name)
        except (Py4JError, PySparkException) as error:
            failed.__cause__ = error
        return failed

    def _call(self, target: str, method: str, *given: object) -> Any:
        """Call a method of an object in the JVM."""
        values = "".join(map(get_command_part, given))
        answer = self._send(f"{_CALL}{target}\n{method}\n{values}e\n")
        return java_gateway.get_return_value(answer, self._client, target, method)


def _names(files: Sequence[WatchedFile]) -> str:
    return ", ".join(f"{file.path} of part {file.part}" for file in files)


__all__ = ["READS", "ActionFailed", "install", "watch"]
