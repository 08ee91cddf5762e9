"""Named tokens: what each role may do, at which tables, and how tokens come and go while the server runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from replitree.client.connection import Connection
from replitree.client.transport.access import Access
from replitree.coordination.memory import MemoryCoordination
from replitree.errors import BadInput, NotAuthorized, NotPermitted
from replitree.replica.http.http_api import HttpApi
from replitree.replica.http.roles import OF_ALL_TABLES, ROLES
from replitree.replica.kit.tokens import create_token, read_tokens, revoke_token
from replitree.wire.named_token import Role, make_named_token
from replitree.wire.ticket import Ticket
from tests.replica.inprocess import NOWHERE, TOKEN, InProcessCluster, Node, as_stream, rows
from tests.waiting import wait_for

LATER = int(time.time()) + 3600
TABLE = "/v1/tables/t"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.fixture
def node(tmp_path: Path, file: Path) -> Iterator[Node]:
    cluster = InProcessCluster(tmp_path, 1, tokens_file=str(file))
    cluster.create_table()
    yield cluster.nodes[0]
    cluster.close()


def let_in(node: Node, file: Path, name: str, role: Role, *tables: str) -> str:
    """Make a token and wait until the replica knows it."""
    text = create_token(file, name, role, tables or None).text
    wait_for(lambda: node.request("GET", f"{TABLE}/status", token=text)[0] != 401, "the token is known")
    return text


def served_routes() -> set[tuple[str, str]]:
    inserts = cast("Any", SimpleNamespace(bodies=SimpleNamespace(held=None)))
    application = HttpApi(cast("Any", None), cast("Any", None), inserts).application()
    found = {
        (route.method, route.resource.canonical) for route in application.router.routes() if route.resource is not None
    }
    return {each for each in found if each[0] != "HEAD"}


def test_every_route_has_a_role_and_only_health_needs_none() -> None:
    assert served_routes() - set(ROLES) == {("GET", "/health")}
    assert set(ROLES) <= served_routes()
    assert set(ROLES) >= OF_ALL_TABLES


@pytest.mark.parametrize("asked", sorted(ROLES), ids=" ".join)
def test_nothing_but_health_answers_without_a_token(cluster: InProcessCluster, asked: tuple[str, str]) -> None:
    node, (method, path) = cluster.nodes[0], asked
    for name, value in (("{table}", "t"), ("{kind}", "frozen"), ("{wish}", "pause"), ("{index}", "1")):
        path = path.replace(name, value)
    path = path.replace("{", "").replace("}", "")
    body = None if method == "GET" else b"{}"
    for token in ("", "wrong", make_named_token("stranger").text, Ticket("t", LATER, reads=True).signed("other")):
        status, answer = node.request(method, path, body, token)
        assert (status, answer["error"]) == (401, "NotAuthorized"), (path, token, answer)
    assert node.request("GET", "/health", token="")[0] == 200


def test_role_opens_its_routes_and_no_others(node: Node, file: Path) -> None:
    read, write, admin = (let_in(node, file, str(role), role) for role in Role)
    stream = as_stream(rows(0))
    assert node.request("POST", f"{TABLE}/insert", stream, write)[0] == 200
    assert node.request("POST", f"{TABLE}/insert?token=x", as_stream(rows(10)), admin)[0] == 200
    status, answer = node.request("POST", f"{TABLE}/insert", stream, read)
    assert (status, answer["error"]) == (403, "NotPermitted")
    assert answer["message"] == (
        "token 'read' has the role read, and this needs write: use another token (`replitree token create --role`)"
    )
    for token in (read, write, admin):
        assert node.request("GET", f"{TABLE}/snapshot", token=token)[0] == 200
        assert node.request("GET", "/metrics", token=token)[0] == 200
    for token, expected in ((read, 403), (write, 403), (admin, 200)):
        assert node.request("POST", f"{TABLE}/merges/pause", b"{}", token)[0] == expected
    # Acknowledged rows are shown as soon as the entry is executed.
    wait_for(lambda: len(node.keys()) == 20, "both inserts are shown")


def test_token_of_a_table_opens_that_one_alone(node: Node, file: Path) -> None:
    other = let_in(node, file, "other", Role.ADMIN, "u")
    own = let_in(node, file, "own", Role.ADMIN, "t", "u")
    for method, path, body in (
        ("GET", f"{TABLE}/snapshot", None),
        ("POST", f"{TABLE}/insert", as_stream(rows(0))),
        ("GET", f"{TABLE}/status", None),
        ("GET", "/v1/status", None),
        ("GET", "/metrics", None),
        ("POST", f"{TABLE}/views", b"{}"),
    ):
        status, answer = node.request(method, path, body, other)
        assert (status, answer["error"]) == (403, "NotPermitted"), (path, answer)
    assert "is for the tables u, not for table t" in node.request("GET", f"{TABLE}/snapshot", token=other)[1]["message"]
    assert node.request("POST", f"{TABLE}/insert", as_stream(rows(0)), own)[0] == 200
    assert "not for what belongs to no table" in node.request("GET", "/v1/status", token=own)[1]["message"]
    # Its shards are the table's.
    assert node.request("GET", "/v1/tables/u~0/snapshot", token=other)[0] == 404


def test_tokens_come_and_go_without_a_restart(node: Node, file: Path) -> None:
    token = let_in(node, file, "etl", Role.WRITE)
    revoke_token(file, "etl")
    wait_for(lambda: node.request("GET", f"{TABLE}/status", token=token)[0] == 401, "the token is forgotten")
    again = let_in(node, file, "etl", Role.WRITE)
    assert again != token
    assert node.request("GET", f"{TABLE}/status", token=token)[0] == 401
    # A file that is broken while it is changed by hand takes no client's token away.
    before = file.read_bytes()
    file.write_bytes(b"{")
    time_of_look = time.monotonic() + 1.5
    wait_for(lambda: time.monotonic() > time_of_look, "the server has looked")
    assert node.request("GET", f"{TABLE}/status", token=again)[0] == 200
    file.write_bytes(before)
    assert node.request("GET", f"{TABLE}/status")[0] == 200


def test_ticket_opens_no_more_than_its_token(node: Node, file: Path) -> None:
    assert node.insert(rows(0))[0] == 200
    (part,) = wait_for(node.contents, "the part is visible")
    manifest = f"{TABLE}/parts/{part}/manifest"
    read, other = let_in(node, file, "reader", Role.READ), let_in(node, file, "other", Role.WRITE, "u")
    mine = node.post("uploads")["upload"]
    ticket = Ticket("t", LATER, reads=True, upload=mine).signed(read)
    assert node.request("GET", manifest, token=ticket)[0] == 200
    assert node.request("DELETE", f"{TABLE}/uploads/{mine}", token=ticket)[0] == 403
    assert node.request("GET", manifest, token=Ticket("t", LATER, reads=True).signed(other))[0] == 403
    # The ticket of another name, and one that was changed, were signed by no token.
    assert node.request("GET", manifest, token=ticket.replace(".reader.", ".other."))[0] == 401
    revoke_token(file, "reader")
    wait_for(lambda: node.request("GET", manifest, token=ticket)[0] == 401, "the ticket ends with its token")


def test_client_hears_what_its_token_may_not_do(node: Node, file: Path) -> None:
    read = let_in(node, file, "reader", Role.READ)
    shared = node.coordination.shared
    with closing(Connection(Access(NOWHERE, read), lambda: MemoryCoordination(shared))) as connection:
        table = connection.table("t")
        assert len(table.to_arrow()) == 0
        with pytest.raises(NotPermitted, match="this needs write"):
            table.insert(rows(0))
        with pytest.raises(NotPermitted, match="this needs write"):
            table.delete("k = 1")
        with pytest.raises(NotPermitted, match="this needs admin"):
            table.alter("ADD COLUMN c string")
    with (
        closing(
            Connection(Access(NOWHERE, make_named_token("stranger").text), lambda: MemoryCoordination(shared))
        ) as them,
        pytest.raises(NotAuthorized, match="the token is missing or wrong"),
    ):
        them.table("t").to_arrow()


def test_file_has_no_token_and_only_its_owner_reads_it(file: Path) -> None:
    made = create_token(file, "etl", Role.WRITE, ("t",))
    assert file.stat().st_mode & 0o777 == 0o600
    assert made.text.rpartition(".")[2] not in file.read_text()
    (kept,) = read_tokens(file).tokens
    assert (kept.name, kept.role, kept.tables, kept.digest) == ("etl", Role.WRITE, ("t",), made.digest)
    with pytest.raises(BadInput, match="there is a token 'etl'"):
        create_token(file, "etl", Role.READ, None)
    with pytest.raises(BadInput, match="there is no token 'none'"):
        revoke_token(file, "none")
    with pytest.raises(BadInput, match="can't be a token's name"):
        create_token(file, "E.T", Role.READ, None)
    file.chmod(0o640)
    with pytest.raises(BadInput, match=f"can be read by others: chmod 600 {file}"):
        read_tokens(file)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"tokens": 1}',
        b'{"format": 2}',
        b'{"tokens": [{"name": "a", "role": "root"}]}',
        b"[" * 9000,
    ],
)
def test_file_that_is_none_is_named(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    file.chmod(0o600)
    with pytest.raises(BadInput, match=r"tokens\.json"):
        read_tokens(file)


def test_cluster_s_own_token_still_does_everything(node: Node) -> None:
    assert node.request("POST", f"{TABLE}/merges/pause", b"{}", TOKEN)[0] == 200
    assert node.request("GET", "/v1/status")[0] == 200
