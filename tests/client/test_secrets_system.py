"""Credentials of a store are in no log and in no node: real processes, a real S3 server, one request that is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from replitree.client.cluster import TOKEN_FILE, LocalCluster
from replitree.coordination.zookeeper import ZooKeeperCoordination
from replitree.errors import NotAuthorized
from replitree.protocol.core.effects import Children, Get
from replitree.storage.files.folder_walk import below
from tests.coordination.waiting import patient_session
from tests.shared.stores import BUCKET, on
from tests.storage.objects.seaweed import KEYS

pytestmark = pytest.mark.system

ACCESS, SECRET = KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"]
WRONG_SECRET, SESSION = "refused-secret-5a1c", "session-of-nobody-7be2"


def write_keys(file: Path, secret: str, session: str = "") -> None:
    lines = ["[default]", f"aws_access_key_id = {ACCESS}", f"aws_secret_access_key = {secret}"]
    file.write_text("\n".join([*lines, f"aws_session_token = {session}"] if session else lines))


def nodes(session: ZooKeeperCoordination, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield every node from a path on: its path and what it holds."""
    node = session.perform(Get(path))
    if node is not None:
        yield path, path.encode() + b"\n" + node.value
    for name in session.perform(Children(path)) or ():
        yield from nodes(session, f"{path}/{name}")


def written(cluster: LocalCluster) -> dict[str, bytes]:
    """Everything that coordination holds and the processes have on their disks, but for the file of the cluster's own token."""
    session = patient_session(cluster.access.url)
    found = dict(nodes(session, session.url.root))
    session.close()
    for path in below(cluster.folder):
        with suppress(FileNotFoundError):  # the processes go on
            if path.is_file() and path.name != TOKEN_FILE:
                found[str(path)] = path.read_bytes()
    return found


def holders(found: dict[str, bytes], text: str) -> list[str]:
    return sorted(name for name, content in found.items() if text.encode() in content)


@on(BUCKET)
def test_no_log_and_no_node_has_a_secret(tmp_path: Path, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = tmp_path / "keys"
    for name in KEYS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("REPLITREE_STORE_CREDENTIALS", str(keys))
    write_keys(keys, WRONG_SECRET, SESSION)
    with LocalCluster(tmp_path / "cluster", 2, durable=False) as cluster:
        with pytest.raises(NotAuthorized, match="refuses to") as refused:
            cluster.create_table("t", "k bigint not null", storage=store_url, timeout_s=1.0)
        write_keys(keys, SECRET)
        table = cluster.create_table("u", "k bigint not null", storage=store_url, wait_replicas=2)
        table.insert({"k": [1, 2]})
        assert table.replica("r2").to_arrow(level="linearizable").num_rows == 2
        found = written(cluster)
        token = (cluster.folder / TOKEN_FILE).read_text().strip()
        logs = [name for name in found if name.endswith(".log")]
        assert len(holders({name: found[name] for name in logs}, "activated")) >= 2
        assert any("/u/metadata" in name for name in holders(found, store_url))
        found["the error"] = str(refused.value).encode()
        for secret in (SECRET, WRONG_SECRET, SESSION, token):
            assert secret
            assert holders(found, secret) == []
