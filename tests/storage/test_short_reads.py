"""Reads that end early: what is missing is in doubt or damaged, never absent, and no blob is shorter than it is.

So the models know a read that failed, and copies that are damaged, and nothing between.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, Self

import pytest

from replitree.storage.objects import open_store
from replitree.tablet.group.member import Contents, Done, Failed, Look, Reply, Scan, Write
from replitree.tablet.members.directory import BlobDirectory, make_blob_directory
from replitree.tablet.members.frames import frame_of
from replitree.tablet.members.remote import RemoteMember
from replitree.tablet.members.segments import Segments
from replitree.tablet.members.store import BlobStore, make_blob_store, payload_of
from tests.storage.blob_providers import GROUP, blob_id
from tests.storage.blob_service_provider import TOKEN, Services
from tests.storage.objects.conftest import KEYS
from tests.storage.objects.s3_server import Fault, S3Server

BLOBS = tuple((blob_id(1, step), b"x" * 40) for step in (1, 2, 3))
ALL = Scan(blob_id(1, 0), blob_id(9, 0))
ONE = Look((BLOBS[1][0],))


def is_honest(reply: Reply) -> bool:
    """Whether a reply says of each blob that it is there, whole, or damaged; or is a doubt."""
    if isinstance(reply, Failed):
        return True
    assert isinstance(reply, Contents)
    return (
        set(reply.blobs) <= set(BLOBS) and {blob for blob, _ in reply.blobs} | set(reply.damaged) == dict(BLOBS).keys()
    )


# --- directories ------------------------------------------------------------------------------------------------------------


class Cut:
    """A file whose reads end so many bytes early."""

    def __init__(self, file: BufferedReader, missing: int) -> None:
        self._file, self._missing = file, missing

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        return data[: max(0, len(data) - self._missing)]

    def seek(self, offset: int) -> int:
        return self._file.seek(offset)

    def fileno(self) -> int:
        return self._file.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextmanager
def reads_that_end_early(missing: int) -> Iterator[None]:
    whole = Path.open

    def cutting(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        file = whole(path, mode, *arguments, **options)
        return Cut(file, missing) if path.suffix == ".seg" and isinstance(file, BufferedReader) else file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", cutting)
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_blob_directory(tmp_path / "0", GROUP, 0, "d0")
    assert BlobDirectory(tmp_path / "0").answer(Write(BLOBS)) == Done()
    return tmp_path / "0"


WHOLE_BYTES = sum(len(frame_of(*each)) for each in BLOBS)


def test_directory_that_reads_too_little_of_a_segment_does_not_answer(folder: Path) -> None:
    for missing in (*range(1, WHOLE_BYTES, 5), WHOLE_BYTES):
        directory = BlobDirectory(folder)
        with reads_that_end_early(missing):
            reply = directory.answer(ALL)
            assert isinstance(reply, Failed)
            assert f"ended at byte {WHOLE_BYTES - missing} of {WHOLE_BYTES}" in reply.reason
            assert isinstance(directory.answer(Write(((blob_id(1, 4), b"y"),))), Failed)
        assert directory.answer(ALL) == Contents(BLOBS)


def test_directory_that_reads_too_little_of_a_blob_it_knows_calls_it_damaged(folder: Path) -> None:
    directory = BlobDirectory(folder)
    assert directory.answer(ALL) == Contents(BLOBS)
    for missing in range(1, WHOLE_BYTES + 1):
        with reads_that_end_early(missing):
            reply = directory.answer(ALL)
            assert is_honest(reply)
            assert isinstance(reply, Contents)
            assert BLOBS[2][0] in reply.damaged
            assert directory.answer(ONE) == Contents(damaged=(BLOBS[1][0],))
    assert directory.answer(ALL) == Contents(BLOBS)


def test_segment_of_which_the_rest_is_taken_for_never_written_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Segments._read_on  # noqa: SLF001 - what is broken
    monkeypatch.setattr(Segments, "_read_on", lambda self, segment, _size: whole(self, segment, 0))
    with reads_that_end_early(1):
        assert not is_honest(BlobDirectory(folder).answer(ALL))


def test_state_file_that_is_read_in_part_is_a_doubt(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = (folder / "state").read_bytes()
    for size in range(len(whole)):
        directory = BlobDirectory(folder)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", lambda _, size=size: whole[:size])
            assert isinstance(directory.standing(), Failed)
            assert isinstance(directory.answer(ALL), Failed)


# --- blob services ----------------------------------------------------------------------------------------------------------


class Cutting:
    """A port with a service behind it; an answer ends, and its connection with it, after so many bytes."""

    def __init__(self, service: str) -> None:
        host, _, port = service.partition(":")
        self._service = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(60)
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.answer_bytes = 1 << 20
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client, socket.create_connection(self._service, 60) as service:
                client.settimeout(60)
                self._relay(client, service)

    def _relay(self, client: socket.socket, service: socket.socket) -> None:
        """Pass one question on, and the beginning of its answer."""
        question = b""
        while not is_message(question):
            question += client.recv(1 << 16)
        service.sendall(question)
        answer = b""
        while not is_message(answer):
            answer += service.recv(1 << 16)
        client.sendall(answer[: self.answer_bytes])

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()


def is_message(data: bytes) -> bool:
    """Whether all that a message of HTTP says it has is here."""
    head, end, body = data.partition(b"\r\n\r\n")
    lengths = [each.partition(b":")[2] for each in head.lower().splitlines() if each.startswith(b"content-length:")]
    return bool(end) and bool(lengths) and len(body) >= int(lengths[0])


def test_answer_of_a_service_that_ends_early_is_a_doubt(folder: Path) -> None:
    services = Services()
    cutting = Cutting(services.start(BlobDirectory(folder)))
    member = RemoteMember(cutting.address, TOKEN)
    try:
        assert member.answer(ALL) == Contents(BLOBS)
        for whole in range(0, 1 << 10, 5):
            cutting.answer_bytes = whole
            reply = member.answer(ALL)
            if reply == Contents(BLOBS):
                break
            assert isinstance(reply, Failed), (whole, reply)
        assert 300 < whole < 1000, "the answer was cut in its head, in its body, and then not"
    finally:
        member.close()
        cutting.close()
        services.close()


# --- object stores ----------------------------------------------------------------------------------------------------------


def test_object_that_is_read_in_part_is_damaged() -> None:
    blob, data = BLOBS[0]
    frame = frame_of(blob, data)
    assert payload_of(blob, frame) == data
    assert all(payload_of(blob, frame[:size]) is None for size in range(len(frame)))


@pytest.mark.parametrize("question", [ALL, ONE], ids=["scan", "look"])
def test_answers_of_a_store_that_end_early_are_asked_for_again(question: Scan | Look) -> None:
    with S3Server() as server:
        store = open_store(server.url(), environment=KEYS, wait=lambda _: None)
        make_blob_store(store, GROUP, 0, "s0")
        member = BlobStore(store)
        assert member.answer(Write(BLOBS)) == Done()
        whole = member.answer(question)
        for cut in (1, 2, 5):
            server.state.faults.extend([("GET", Fault.CUT_ANSWER)] * cut)
            assert member.answer(question) == whole
            assert not server.state.faults
        member.close()
