"""The files of a running cluster: closed to other users, or open to a group; other users of the machine read by HTTP."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replitree.client.cluster import LocalCluster
from tests.waiting import wait_for

pytestmark = pytest.mark.system

NOBODY = 65_534
TABLE = "rows"

READER = """
    import os, sys
    import replitree
    url, token, user, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

    def rows():
        with replitree.connect(url, token=token) as connection:
            table = connection.table("rows")
            snapshot = table.snapshot()
            return snapshot.is_local, sorted(table.to_arrow()["k"].to_pylist())

    local, keys = rows()  # also loads all modules: the other user may not be able to read them
    assert keys == list(range(count)), keys
    assert local, "this user reads the files themselves"
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        local, keys = rows()
        assert not local, "the other user can't"
        assert keys == list(range(count)), keys
"""


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"k": pa.array(range(first, first + count), pa.int64()), "s": ["x"] * count})


def modes(root: Path) -> dict[str, int]:
    """The modes of all files and folders below a folder, and of itself; what goes meanwhile is left out."""
    found = {}
    for place, folders, files in os.walk(root):
        for name in (".", *folders, *files):
            path = Path(place, name)
            if not path.is_symlink() and path.exists():
                found[str(path.relative_to(root))] = stat.S_IMODE(path.stat().st_mode)
    return found


def used(cluster: LocalCluster, folder: Path) -> None:
    """Use a cluster in the ways in which it writes files."""
    store = folder / "store"
    table = cluster.create_table(TABLE, "k bigint not null, s string", order_by="k")
    for first in range(0, 100, 10):
        table.insert(rows(first, 10))
    table.insert(pa.concat_tables([rows(100, 100)] * 1), quorum=2)
    table.delete("k >= 200")
    table.optimize()
    shared = cluster.create_table("shared", "k bigint not null, s string", order_by="k", storage=f"file://{store}")
    shared.insert(rows(0, 10))
    assert shared.to_arrow().num_rows == 10
    wait_for(lambda: any(store.rglob("data-0.parquet")), "the store has a part")


def test_files_are_private_and_other_users_read_by_http(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with LocalCluster(tmp_path / "cluster", 2, durable=False) as cluster:
        used(cluster, tmp_path)
        for root in (tmp_path / "cluster", tmp_path / "store"):
            found = modes(root)
            assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}
        assert len(modes(tmp_path / "cluster")) > 60
        token = (tmp_path / "cluster" / "token").read_text().strip()
        assert cluster.zookeeper is not None
        command = [sys.executable, "-c", textwrap.dedent(READER), cluster.zookeeper.url, token, str(NOBODY), "200"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr


def test_a_group_may_read_the_rows_and_no_secret(tmp_path: Path) -> None:
    settings = {"files_group_readable": True, "log_bytes_max": 2000, "log_files": 2}
    with LocalCluster(tmp_path / "cluster", 1, durable=False, settings=settings) as cluster:
        table = cluster.create_table(TABLE, "k bigint not null, s string", order_by="k")
        for first in range(0, 30, 10):
            table.insert(rows(first, 10))
        found = modes(tmp_path / "cluster")
        assert {name: oct(mode) for name, mode in found.items() if mode & 0o007} == {}
        data = {name: mode for name, mode in found.items() if name.endswith((".parquet", "manifest.json"))}
        assert set(data.values()) == {0o640}
        above = {str(parent) for name in data for parent in Path(name).parents}
        assert {found[name] for name in above} == {0o2750}
        secret = {
            name: mode
            for name, mode in found.items()
            if name.startswith("zookeeper") or "token" in name or "toml" in name
        }
        assert {name: oct(mode) for name, mode in secret.items() if mode & 0o070} == {}
