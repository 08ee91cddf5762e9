"""Storage policies: what people write, what is kept of it, and which one may follow which."""

from __future__ import annotations

import pytest

from replitree.errors import BadInput
from replitree.storage.schema.storage_policy import StorageKind, StoragePolicy, parse_storage, switched

URL = "s3://lake/tables?endpoint=https://store:8333"


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("local", StoragePolicy(StorageKind.LOCAL)),
        (URL, StoragePolicy(StorageKind.SHARED, URL)),
        (f"local({URL})", StoragePolicy(StorageKind.LOCAL, URL)),
        (f"tiered({URL}, older=7d)", StoragePolicy(StorageKind.TIERED, URL, "7d")),
        (f"tiered({URL}, free=100GB)", StoragePolicy(StorageKind.TIERED, URL, "", "100GB")),
        (f"tiered({URL}, older=90s, free=1TB)", StoragePolicy(StorageKind.TIERED, URL, "90s", "1TB")),
        ("tiered(file:///a,b/(c), older=1h)", StoragePolicy(StorageKind.TIERED, "file:///a,b/(c)", "1h")),
    ],
)
def test_a_policy_is_read_as_it_is_written(text: str, policy: StoragePolicy) -> None:
    assert parse_storage(text) == policy
    assert policy.text == text


def test_spaces_do_not_matter() -> None:
    assert parse_storage(f"tiered( {URL} ,older = 7d , free=1GB )").text == f"tiered({URL}, older=7d, free=1GB)"


def test_units() -> None:
    assert [parse_storage(f"tiered({URL}, older=2{unit})").older_s for unit in "smhd"] == [2, 120, 7200, 172_800]
    sizes = [parse_storage(f"tiered({URL}, free=3{unit})").free_bytes for unit in ("B", "KB", "MB", "GB", "TB")]
    assert sizes == [3, 3 * 10**3, 3 * 10**6, 3 * 10**9, 3 * 10**12]
    assert parse_storage(URL).older_s is None
    assert parse_storage(URL).free_bytes == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"tiered({URL})", "does not say when"),
        (f"local({URL}, older=7d)", "leave older out"),
        (f"tiered {URL}", "no storage policy"),
        ("tiered()", "no storage policy"),
        ("localhost", "no storage policy"),
    ],
)
def test_what_is_no_policy_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        parse_storage(text)


def test_a_table_leaves_a_store_before_it_gets_another() -> None:
    local, here, there = parse_storage("local"), parse_storage(URL), parse_storage("file:///other")
    assert switched(local, here) == here
    leaving = switched(here, local)
    assert leaving.text == f"local({URL})"
    assert switched(leaving, local) == leaving
    assert switched(leaving, here) == here
    assert switched(here, parse_storage(f"tiered({URL}, older=1d)")).kind is StorageKind.TIERED
    for before in (here, leaving):
        with pytest.raises(BadInput, match="switch to local first"):
            switched(before, there)
