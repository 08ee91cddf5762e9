"""Parts are sent as shares only to who asks for that in a form that it knows, and taken as shares only where that was said."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import pytest
from typing_extensions import override

from replitree.protocol.core.effects import Fetched, FetchPart, NotFetched
from replitree.protocol.core.parts import inserted_part
from replitree.replica.perform import exchange
from replitree.replica.perform.exchange import FRAME, BundleHeader, Exchange, Peer
from replitree.storage.disk.store import PartStore
from tests.replica.inprocess import TOKEN, Node, rows, wait_for
from tests.replica.test_sharing import SharedCluster

COOKIE = "send_s3_metadata=1; Path=/"


@pytest.fixture
def shared(tmp_path: Path, store_url: str) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, store_url)
    yield cluster
    cluster.close()


# --- who sends --------------------------------------------------------------------------------------------------------------


def bundle_of(node: Node, part: str, **query: str) -> tuple[bool, bool]:
    """Ask for a part; return whether the answer's cookie says that shares may come, and whether one came."""
    connection = http.client.HTTPConnection(node.address, timeout=20)
    try:
        path = f"/v1/tables/t/bundle?{urlencode({'part': part, **query})}"
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        cookies = [cookie.partition(";")[0] for cookie in answer.headers.get_all("Set-Cookie") or ()]
    finally:
        connection.close()
    is_shared = b'"shared": true' in body
    assert is_shared == (b"PAR1" not in body)
    return cookies == ["send_s3_metadata=1"], is_shared


@pytest.mark.parametrize(
    ("query", "is_shared"),
    [
        ({}, False),
        ({"send_s3_metadata": "1"}, False),
        ({"s3_metadata_version": "1"}, False),
        ({"send_s3_metadata": "0", "s3_metadata_version": "1"}, False),
        ({"send_s3_metadata": "yes", "s3_metadata_version": "1"}, False),
        ({"send_s3_metadata": "1", "s3_metadata_version": "0"}, False),
        ({"send_s3_metadata": "1", "s3_metadata_version": "-1"}, False),
        ({"send_s3_metadata": "1", "s3_metadata_version": "1.0"}, False),
        ({"send_s3_metadata": "1", "s3_metadata_version": "\N{SUPERSCRIPT TWO}"}, False),
        ({"send_s3_metadata": "1", "s3_metadata_version": "\N{ARABIC-INDIC DIGIT ONE}"}, False),
        ({"send_s3_metadata": "1", "s3_metadata_version": "1"}, True),
        ({"send_s3_metadata": "1", "s3_metadata_version": "99"}, True),
    ],
    ids=lambda value: " ".join(f"{name}={each}" for name, each in value.items()) if isinstance(value, dict) else "",
)
def test_a_share_is_sent_to_who_asks_for_it_in_a_form_that_it_knows(
    one_part: tuple[Node, str], query: dict[str, str], is_shared: bool
) -> None:
    node, part = one_part
    assert bundle_of(node, part, **query) == (is_shared, is_shared)


@pytest.fixture(scope="module")
def one_part(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, str]]:
    """A replica that has one part, in a folder."""
    folder = tmp_path_factory.mktemp("one_part")
    cluster = SharedCluster(folder, f"file://{folder}/objects", 1)
    (node,) = cluster.nodes
    part = inserted_part("all", node.insert(rows(0))[1]["index"]).name
    wait_for(lambda: part in node.contents(), "it has the part")
    yield node, part
    cluster.close()


# --- who takes --------------------------------------------------------------------------------------------------------------


class Source(http.server.ThreadingHTTPServer):
    """Answers every request for a part with its share."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.address = f"127.0.0.1:{self.server_port}"
        self.body = b""
        self.says_so = True
        self.asked = 0


class _Answer(http.server.BaseHTTPRequestHandler):
    server: Source

    def do_GET(self) -> None:
        self.server.asked += 1
        self.send_response(200)
        if self.server.says_so:
            self.send_header("Set-Cookie", COOKIE)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@dataclass
class Taking:
    """A part of a source with its share, and the disk of a replica that lacks it."""

    source: Source
    disk: PartStore
    wanted: FetchPart
    share: str

    def fetch(self, *, asks: bool = True) -> Fetched | NotFetched:
        """Fetch the part from the source alone."""
        fetching = Exchange(self.disk, lambda _name, _fresh: Peer(self.source.address, TOKEN, "t"), 1, shares=asks)
        try:
            (outcome,) = fetching.fetch([self.wanted])
        finally:
            fetching.close()
        assert isinstance(outcome, Fetched | NotFetched)
        return outcome


@pytest.fixture
def taking(shared: SharedCluster) -> Iterator[Taking]:
    first, second = shared.nodes
    second.coordination.suspend()
    part = inserted_part("all", first.insert(rows(0))[1]["index"]).name
    manifest = first.table().store.manifest(part)
    source = Source()
    header = msgspec.json.encode(BundleHeader(part, len(manifest.encode()), inline=False, shared=True))
    source.body = FRAME.pack(len(header)) + header + manifest.encode()
    thread = threading.Thread(target=source.serve_forever, args=(0.01,))
    thread.start()
    yield Taking(source, second.table().store, FetchPart(part, manifest.content, ("r1",)), str(manifest.share_id))
    source.shutdown()
    thread.join()
    source.server_close()
    second.coordination.resume()


def test_a_share_that_was_asked_for_and_announced_is_taken_over(taking: Taking) -> None:
    assert taking.fetch() == Fetched(taking.wanted.part)
    assert taking.disk.manifest(taking.wanted.part).share_id is not None
    assert taking.source.asked == 1


@pytest.mark.parametrize(("asks", "says_so"), [(True, False), (False, True), (False, False)])
def test_a_share_that_was_not_agreed_on_is_not_taken(taking: Taking, asks: bool, says_so: bool) -> None:
    taking.source.says_so = says_so
    outcome = taking.fetch(asks=asks)
    assert isinstance(outcome, NotFetched)
    assert "not agreed on" in outcome.reason
    assert not taking.disk.has_part(taking.wanted.part)


def test_a_part_that_was_not_asked_for_is_an_error_of_the_source(taking: Taking) -> None:
    taking.wanted = replace(taking.wanted, part="all_7_7_0")
    outcome = taking.fetch()
    assert isinstance(outcome, NotFetched)
    assert "was not asked for" in outcome.reason
    assert not taking.disk.has_part("all_0_0_0")


def test_who_does_not_look_at_the_cookie_takes_what_was_not_announced(
    taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant."""
    monkeypatch.setattr(exchange, "_says_shares", lambda _answer: True)
    taking.source.says_so = False
    assert taking.fetch() == Fetched(taking.wanted.part)


def test_a_source_that_answers_with_a_share_when_it_is_asked_for_the_rows_is_not_asked_without_end(
    taking: Taking,
) -> None:
    taking.disk.shared.distrust(taking.share, "data-0.parquet")
    outcome = taking.fetch()
    assert isinstance(outcome, NotFetched)
    assert "not agreed on" in outcome.reason
    assert taking.source.asked == 4  # for the share and for the rows; and both once more, on a fresh connection
