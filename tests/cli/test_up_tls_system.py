"""`replitree up` by mutual TLS as docs/tls.md says: files by relative paths, commands, new certificates."""

from __future__ import annotations

import json
import os
import ssl
from pathlib import Path

import pytest

from replitree.tls import SECURE, Contexts, TlsFiles, open_connection
from tests.certificates import Authority
from tests.cli.started import rows, start_up, stop
from tests.waiting import wait_for

pytestmark = pytest.mark.system


@pytest.mark.nightly
def test_up_by_mutual_tls_serves_commands_and_shows_new_certificates_everywhere(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("r1")
    chosen = {"tls_certificate": files.certificate, "tls_key": files.key, "tls_ca": files.ca}
    paths = {name: os.path.relpath(file) for name, file in chosen.items()}
    settings = {**paths, "tls_clients": "with_certificate"}
    arguments = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    cluster = start_up(tmp_path / "data", "--replicas", "1", *arguments)
    try:
        told = json.loads((tmp_path / "data" / "cluster.json").read_text())["tls"]
        assert all(Path(file).is_absolute() for file in told.values()), "commands run in other folders"
        assert TlsFiles(**{name: os.path.normpath(file) for name, file in told.items()}) == files
        cluster.run("table", "create", "kept", "--schema", "id bigint not null")
        cluster.run("insert", "kept", "-", "--format", "csv", stdin="id\n1\n2\n")
        assert rows(cluster, "kept") == [2]
        url = cluster.ready["url"]
        assert url.endswith("/replitree?tls")
        zookeeper = SECURE + url.removeprefix("zk://").partition("/")[0]

        def serials() -> list[object]:
            found = list[object]()
            for address in (zookeeper, cluster.ready["replicas"][0]["address"]):
                with open_connection(address, Contexts(files), 20) as connection:
                    assert isinstance(connection, ssl.SSLSocket)
                    found.append((connection.getpeercert() or {})["serialNumber"])
            return found

        before = serials()
        assert before[0] == before[1]
        authority.issue("r1")
        wait_for(lambda: not set(serials()) & set(before), "both show the new certificate")
        cluster.run("insert", "kept", "-", "--format", "csv", stdin="id\n3\n")
        assert rows(cluster, "kept") == [3]
    finally:
        stop(cluster)
