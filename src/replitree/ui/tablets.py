"""What the page shows of tablets: their candidates, and the generations and members of their groups.

The operator names them (`replitree ui --tablet`): the address of a candidate's process, which answers ``GET /status``, or the
folder of a blob group, which is read as `replitree tablet inspect` reads it.

Guarantees: nothing is changed and no member is fenced, so a leader goes on.  A candidate is asked for at most `PATIENCE_S`.
The log of a group is read again only after `REST` times the duration of the last reading, and `GROUP_S` at least.  A browser
can't name addresses or folders.

Absent on purpose: commands, snapshots, repair.
"""

from __future__ import annotations

import http.client
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import ReplitreeError
from replitree.tablet.members.folders import read_group
from replitree.tablet.members.inspection import inspect, look_at

PATIENCE_S = 2.0
"""How long a candidate is waited for, in seconds."""

ANSWER_BYTES_MAX = 64 << 10
ASKED_AT_ONCE = 8

GROUP_S, REST = 10.0, 100.0


class CandidateStatus(msgspec.Struct, frozen=True):
    """What the page takes of a candidate's answer; the names are those of `replitree.machines.service`.

    Attributes
    ----------
    url, problem
        Its address, and why it does not answer; empty: it does.
    """

    url: str = ""
    problem: str = ""
    machine: str = ""
    role: str = ""
    generation: int | None = None
    step: int | None = None
    confirmed: int | None = None
    snapshot: str | None = None
    commands: int | None = None
    is_mended: bool | None = None
    away: tuple[int, ...] = ()
    failures: int = 0
    reason: str | None = None


_decode = json_decoder(CandidateStatus).decode


class Tablets:
    """The tablets that the page was told of.  Any thread may use it.

    Parameters
    ----------
    places
        Addresses of candidates, as ``http://127.0.0.1:8301``, and folders of groups.
    """

    def __init__(self, places: tuple[str, ...]) -> None:
        self._candidates = tuple(each for each in places if each.startswith("http://"))
        self._groups = tuple(_Group(Path(each)) for each in places if not each.startswith("http://"))

    def look(self) -> dict[str, Any]:
        """Return each candidate with its answer, and each group with its last report; what can't be read says why."""
        with ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="replitree-tablets") as pool:
            candidates = list(pool.map(ask_candidate, self._candidates))
        return {"candidates": candidates, "groups": [each.look() for each in self._groups]}


class _Group:
    """A blob group, and what was found in it last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._found: dict[str, Any] = {"path": str(folder), "problem": "", "report": None, "members": [], "write": 0}
        self._next_look = 0.0

    def look(self) -> dict[str, Any]:
        """Return what is in the group; what was found a while ago if its members are to rest."""
        with self._lock:
            if time.monotonic() >= self._next_look:
                began = time.monotonic()
                self._found = {**self._found, "problem": "", **self._read(), "at": time.time()}
                ended = time.monotonic()
                self._next_look = ended + max(GROUP_S, REST * (ended - began))
            return self._found

    def _read(self) -> dict[str, Any]:
        try:
            looked = look_at(self._folder)
            # A folder of one member has no file of the group.
            file = None if looked.is_alone else read_group(self._folder)
            report = inspect(looked)
        except (ReplitreeError, OSError) as error:
            return {"problem": str(error)}
        members = ["this member"] if file is None else [each.name for each in file.members]
        plain = {**msgspec.to_builtins(report), "verdict": report.verdict}
        return {"report": plain, "members": members, "write": looked.quorum.write}


def ask_candidate(url: str) -> CandidateStatus:
    """Return what a candidate says of itself; `problem` says why it does not.

    Parameters
    ----------
    url
        As ``http://127.0.0.1:8301``.
    """
    address = urlsplit(url)
    try:
        with closing(
            http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)
        ) as connection:
            connection.request("GET", "/status")
            answer = connection.getresponse()
            return read_status(url, answer.status, answer.read(ANSWER_BYTES_MAX))
    except ConnectionRefusedError:
        problem = "no process listens there"
    except (OSError, http.client.HTTPException) as error:
        problem = f"it does not answer: {str(error) or type(error).__name__}"
    return CandidateStatus(url, problem=problem)


def read_status(url: str, status: int, body: bytes) -> CandidateStatus:
    """Return what an answer to ``GET /status`` says; `problem` when it is not a candidate's."""
    try:
        if status == http.client.OK:
            return msgspec.structs.replace(_decode(body), url=url, problem="")
        problem = f"it answers with status {status}, and is no candidate of a tablet"
    except (msgspec.MsgspecError, RecursionError) as error:
        problem = f"it does not answer as a candidate does: {error}"
    return CandidateStatus(url, problem=problem)
