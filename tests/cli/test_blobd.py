"""`replitree blobd` as a process: it makes its directory, says where it listens, and keeps what it answered for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from replitree.tablet.group.effects import Overtaken
from replitree.tablet.group.ids import Generation
from replitree.tablet.group.member import Contents, Done, Raise, Scan, Write
from replitree.tablet.members.member import Standing
from replitree.tablet.members.remote import RemoteMember
from replitree_bench.kit.standalone import ENDS_WITH_PARENT
from tests.cli.conftest import Run
from tests.storage.blob_providers import TABLET, blob_id, fence

TOKEN = "a-token-of-some-length"
BLOBS = ((blob_id(1, 1), b"x"),)


class Blobd:
    """The process, and a client of it."""

    def __init__(self, folder: Path, *more: str) -> None:
        (folder / "token").write_text(TOKEN)
        command = [sys.executable, "-m", "replitree.cli.main", "blobd", "--dir", str(folder / "member")]
        command += ["--token-file", str(folder / "token"), *more]
        # A test that is terminated calls no fixture: the kernel ends the service then.
        self.process = subprocess.Popen([*ENDS_WITH_PARENT, *command], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.incarnation = said["incarnation"]
        self.member = RemoteMember(said["listening"], TOKEN, 60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.member.close()
        self.process.kill()
        self.process.communicate()


@pytest.mark.system
def test_what_was_answered_for_survives_a_kill(tmp_path: Path) -> None:
    with Blobd(tmp_path, "--make", "g", "--number", "1") as first:
        assert first.member.standing() == Standing(first.incarnation, 0, ())
        assert first.member.answer(Write(BLOBS)) == Done()
        assert first.member.answer(Raise(TABLET, fence(1))) == Done()
        incarnation = first.incarnation
    with Blobd(tmp_path) as second:
        assert second.incarnation == incarnation
        assert second.member.answer(Scan(blob_id(1, 0), blob_id(9, 0))) == Contents(BLOBS)
        assert second.member.answer(Write(((blob_id(1, 2), b"y"),))) == Overtaken(Generation(1))
        second.process.terminate()
        assert second.process.wait(60) == 0


def test_directory_that_is_none_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    ran = run("blobd", "--dir", str(tmp_path / "nothing"), "--token-file", str(tmp_path / "token"))
    assert ran.status == 1
    assert "--make GROUP makes a new one" in ran.err
