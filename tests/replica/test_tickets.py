"""What a ticket opens at a replica: the files of one table's parts, or of one upload, and nothing else."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from replitree.replica.http.http_api import HttpApi
from replitree.wire.ticket import READ_ROUTES, UPLOAD_ROUTES, Ticket, read_ticket
from tests.replica.inprocess import TOKEN, InProcessCluster, Node, rows

LATER = int(time.time()) + 3600
TABLE = "/v1/tables/t"


def is_let_in(node: Node, ticket: str, method: str, path: str, body: bytes | None = None) -> bool:
    """Tell whether a replica serves a request, whatever it answers then."""
    return node.request(method, path, body, ticket)[0] != 401


@pytest.fixture
def node(cluster: InProcessCluster) -> Node:
    found = cluster.nodes[0]
    assert found.insert(rows(0, 10))[0] == 200
    cluster.wait_equal(list(range(10)))
    return found


def test_ticket_for_reads_opens_the_files_of_its_table(node: Node) -> None:
    ticket = Ticket("t", LATER, reads=True).signed(TOKEN)
    (part,) = node.contents()
    file = node.table().store.manifest(part).files[0].name
    for method, what in (
        ("GET", f"parts/{part}/manifest"),
        ("GET", f"parts/{part}/files/{file}"),
        ("HEAD", f"parts/{part}/files/{file}"),
        ("POST", f"parts/{part}/check"),
    ):
        assert node.request(method, f"{TABLE}/{what}", token=ticket)[0] == 200, what
    assert is_let_in(node, ticket, "POST", f"{TABLE}/leases/none")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/status"),
        ("GET", f"{TABLE}/status"),
        ("GET", f"{TABLE}/snapshot"),
        ("POST", f"{TABLE}/insert"),
        ("POST", f"{TABLE}/uploads"),
        ("POST", f"{TABLE}/mutations"),
        ("POST", f"{TABLE}/drop"),
        ("DELETE", f"{TABLE}/leases/none"),
        ("GET", "/v1/tables/u/parts/all_1_1_0/manifest"),
        ("GET", "/v1/tables/u/../t/status"),
        ("GET", f"{TABLE}/parts/%2e%2e/%2e%2e/status"),
        ("GET", f"{TABLE}/nothing"),
    ],
)
def test_ticket_for_reads_opens_nothing_else(node: Node, method: str, path: str) -> None:
    ticket = Ticket("t", LATER, reads=True, upload="0" * 32).signed(TOKEN)
    status, answer = node.request(method, path, b"{}" if method == "POST" else None, ticket)
    # The router answers 404 for a path without a route, whatever the request has sent as its token.
    assert status == 401 or (status, answer) == node.request(method, path), answer
    assert status in (401, 404)


def test_ticket_for_an_upload_fills_that_one_and_does_not_commit_it(node: Node) -> None:
    mine, other = (node.post("uploads")["upload"] for _ in range(2))
    ticket = Ticket("t", LATER, upload=mine).signed(TOKEN)
    file = "all/data-0.parquet?checksum=none"
    for place in (f"uploads/{mine}/{file}", f"uploads/{mine}/tasks/task-0-1/{file}"):
        assert is_let_in(node, ticket, "PUT", f"{TABLE}/{place}", b"x")
    assert not is_let_in(node, ticket, "PUT", f"{TABLE}/uploads/{other}/{file}", b"x")
    for what in (f"uploads/{mine}/commit", f"uploads/{mine}/gather", "rewrites/adopt", "rewrites/commit"):
        assert not is_let_in(node, ticket, "POST", f"{TABLE}/{what}", b"{}")
    (part,) = node.contents()
    assert not is_let_in(node, ticket, "GET", f"{TABLE}/parts/{part}/manifest")
    assert is_let_in(node, ticket, "DELETE", f"{TABLE}/uploads/{mine}")


def test_changed_and_old_tickets_open_nothing(node: Node) -> None:
    (part,) = node.contents()
    path = f"{TABLE}/parts/{part}/manifest"
    good = Ticket("t", LATER, reads=True).signed(TOKEN)
    assert is_let_in(node, good, "GET", path)
    for wrong in (
        good[:-1] + ("0" if good[-1] != "0" else "1"),
        good.replace(f".{LATER}.", f".{LATER + 1}."),
        good.replace(".t.", ".u."),
        Ticket("t", LATER, reads=True).signed("another token"),
        Ticket("t", int(time.time()) - 1, reads=True).signed(TOKEN),
        "ticket.",
        "ticket....." + "0" * 64,
    ):
        assert not is_let_in(node, wrong, "GET", path), wrong


def test_every_route_of_a_ticket_is_one_of_the_server() -> None:
    inserts = SimpleNamespace(bodies=SimpleNamespace(held=None))
    app = HttpApi(cast(Any, None), cast(Any, None), cast(Any, inserts)).application()
    routes = {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None}
    assert routes >= READ_ROUTES | UPLOAD_ROUTES
    assert read_ticket(Ticket("t", LATER).signed(TOKEN), TOKEN.encode()) == Ticket("t", LATER)
