from __future__ import annotations

import json
from pathlib import Path

import pytest

import replitree
from replitree.client.cluster import LocalCluster, make_token
from replitree.client.connection import connect
from replitree.client.transport.access import TLS_VARIABLES, find_access
from replitree.errors import BadInput, NotAuthorized
from replitree.tls import TlsFiles


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REPLITREE_TOKEN", "REPLITREE_TOKEN_FILE", *TLS_VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("of the folder\n")
    entry = {"name": "r1", "pid": 1, "data": "/d", "config": "/c"}
    (tmp_path / "cluster.json").write_text(
        json.dumps({"url": "zk://127.0.0.1:2181/replitree", "token_file": "token", "replicas": [entry]})
    )
    return tmp_path


def test_folder_knows_url_token_and_replicas(folder: Path) -> None:
    access = find_access(folder)
    assert (access.url, access.token, access.replicas) == ("zk://127.0.0.1:2181/replitree", "of the folder", ("r1",))


def test_files_of_tls_come_from_the_nearest_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "zk://127.0.0.1:2181/replitree"
    assert find_access(url).tls == TlsFiles()
    said = json.loads((folder / "cluster.json").read_text())
    (folder / "cluster.json").write_text(json.dumps({**said, "tls": {"ca": "/of the folder"}}))
    assert find_access(folder).tls == TlsFiles("/of the folder")
    monkeypatch.setenv("REPLITREE_TLS_CERTIFICATE", "/c")
    with pytest.raises(BadInput, match="REPLITREE_TLS_CERTIFICATE is set and REPLITREE_TLS_KEY is not"):
        find_access(url)
    monkeypatch.setenv("REPLITREE_TLS_KEY", "/k")
    assert find_access(folder).tls == TlsFiles("/of the folder", "/c", "/k")
    monkeypatch.setenv("REPLITREE_TLS_CA", "/of the environment")
    assert find_access(folder).tls == TlsFiles("/of the environment", "/c", "/k")
    # Processes that run in other folders read them, too.
    monkeypatch.chdir(folder)
    given = TlsFiles(*(str(folder / name) for name in ("given", "c2", "k2")))
    assert find_access(folder, tls=TlsFiles("given", "c2", "k2")).tls == given


def test_token_comes_from_the_nearest_place(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "other"
    file.write_text("of the file")
    monkeypatch.setenv("REPLITREE_TOKEN_FILE", str(file))
    assert find_access(folder).token == "of the file"
    monkeypatch.setenv("REPLITREE_TOKEN", "of the environment")
    assert find_access(folder).token == "of the environment"
    assert find_access(folder, "of the argument").token == "of the argument"
    assert find_access("zk://h:1/x", token_file=str(file)).token == "of the file"


def test_secrets_are_in_no_text(folder: Path) -> None:
    connection = connect("zk://user:password@h:1/x", token="very secret")
    for text in (repr(connection), repr(find_access(folder)), connection.url):
        assert "secret" not in text
        assert "password" not in text
        assert "of the folder" not in text


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("/no/such/folder", "start one with `replitree up"),
        ("http://h:1", "not by 'http://h:1'"),
        ("zk://h:1/a//b", "not a path"),
        ("zk://h:99999/", "port"),
    ],
)
def test_wrong_url_says_what_is_right(url: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        connect(url)


def test_damaged_cluster_file_is_named(folder: Path) -> None:
    (folder / "cluster.json").write_text("{")
    with pytest.raises(BadInput, match=r"cluster\.json"):
        connect(folder)


def test_missing_or_empty_token_file_is_named(folder: Path) -> None:
    (folder / "token").write_text("")
    with pytest.raises(NotAuthorized, match="is empty"):
        connect(folder)
    (folder / "token").unlink()
    with pytest.raises(NotAuthorized, match="REPLITREE_TOKEN"):
        connect(folder)


def test_token_is_made_once_and_private(tmp_path: Path) -> None:
    token = make_token(tmp_path / "token")
    assert len(token) >= 32
    assert make_token(tmp_path / "token") == token
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_local_cluster_checks_its_size_before_anything_starts(tmp_path: Path) -> None:
    for replicas in (0, 17):
        with pytest.raises(BadInput, match="1 to 16 replicas"):
            LocalCluster(tmp_path, replicas)


def test_package_exports_what_it_says() -> None:
    for name in replitree.__all__:
        assert getattr(replitree, name) is not None
    with pytest.raises(AttributeError, match="nope"):
        replitree.nope  # noqa: B018
