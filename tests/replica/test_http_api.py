"""The application of the general HTTP server: which of its paths are tried first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from replitree.replica.http.bodies import HeldBytes
from replitree.replica.http.http_api import HttpApi


def test_the_path_by_which_replicas_fetch_parts_is_tried_before_all_others_of_a_table() -> None:
    """aiohttp compares a request with one path after the other; every small insert is fetched by every other replica."""
    tables: Any = None
    inserts: Any = SimpleNamespace(bodies=SimpleNamespace(held=HeldBytes(0)))
    resources = HttpApi(tables, tables, inserts).application().router.resources()
    of_tables = [each.canonical for each in resources if each.canonical.startswith("/v1/tables/")]
    assert of_tables[0] == "/v1/tables/{table}/bundle"
    assert len(of_tables) > 20
