"""`server --check` looks at what a server needs, and creates nothing; the schema for editors is that of the configuration."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.cli.main import main
from replitree.replica.check_config import CheckState, check_config, schema_of_config
from replitree.replica.kit.config import ServerConfig
from replitree.replica.kit.data_folder import lock_data_folder
from tests.project.source import ROOT
from tests.storage.objects.s3_server import Fault, S3Server

SCHEMA = ROOT / "deploy" / "server.schema.json"


@pytest.fixture
def zookeeper() -> Iterator[int]:
    """The port of a server that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "token").chmod(0o600)
    return tmp_path


def write(folder: Path, zookeeper: int, more: str = "") -> Path:
    file = folder / "server.toml"
    data, token = folder / "data", folder / "token"
    file.write_text(
        f'name = "r1"\nzookeeper = "zk://127.0.0.1:{zookeeper}"\ndata = "{data}"\ntoken_file = "{token}"\n{more}'
    )
    return file


def states(file: Path) -> dict[str, str]:
    return {each.item: each.state.value for each in check_config(file)}


def test_a_good_configuration_is_well_and_nothing_is_created(folder: Path, zookeeper: int) -> None:
    before = sorted(folder.iterdir())
    found = states(write(folder, zookeeper, 'advertise = "127.0.0.1:9000"\n'))
    assert found == dict.fromkeys(("configuration", "token_file", "data", "listen", "advertise", "zookeeper"), "ok")
    assert sorted(folder.iterdir()) == sorted([*before, folder / "server.toml"])


@pytest.mark.parametrize(
    ("more", "item", "state"),
    [
        ("merges_max = 0\n", "configuration", "wrong"),
        ('listen = "0.0.0.0:0"\n', "advertise", "wrong"),
        ('listen = "192.0.2.1:9000"\n', "listen", "wrong"),
        ('advertise = "nowhere.invalid:9000"\n', "advertise", "warning"),
        (f"disk_reserve_bytes = {1 << 62}\n", "disk_reserve_bytes", "warning"),
        ('trace = "/proc/nothing/here"\n', "trace", "wrong"),
    ],
)
def test_a_mistake_is_found(folder: Path, zookeeper: int, more: str, item: str, state: str) -> None:
    if os.geteuid() == 0 and item == "trace":
        more = f'trace = "{folder}/token/below"\n'
    assert states(write(folder, zookeeper, more))[item] == state


def store_check(file: Path) -> tuple[str, str]:
    (found,) = [each for each in check_config(file) if each.item == "stores.cold"]
    return found.state.value, found.text


def test_a_store_is_tried_with_the_identity_that_was_found(
    folder: Path, zookeeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE00001")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    with S3Server() as server:
        file = write(folder, zookeeper, f'[stores]\ncold = "{server.url()}"\n')
        state, text = store_check(file)
        assert (
            state,
            "keys of the environment (AKIA…0001): reads, writes, creates only what is not there" in text,
        ) == (
            "ok",
            True,
        )
        assert server.state.objects == {}, "trial objects are deleted"
        server.state.honours_matches = False
        state, text = store_check(file)
        assert (state, "must be as it was" in text) == ("wrong", True)
        server.state.honours_matches = True
        # Who may only read.
        server.state.faults += [("PUT", Fault.DENY)] * 4
        state, text = store_check(file)
        assert (state, "): reads; then: " in text, "refuses to store" in text) == ("wrong", True, True)
        assert "hidden" not in text
    monkeypatch.setattr("replitree.replica.check_config.STORE_S_MAX", 0.0)
    state, text = store_check(file)
    assert (state, "did not answer" in text) == ("warning", True)


def test_a_store_without_an_identity_is_wrong_and_says_what_to_do(
    folder: Path, zookeeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "none!")
    file = write(folder, zookeeper, '[stores]\ncold = "az://lake?account=example"\n')
    assert store_check(file) == (
        "wrong",
        "AZURE_STORAGE_ACCOUNT_KEY is no key of a storage account: it must be Base64",
    )


def test_a_token_that_others_can_read_is_wrong(folder: Path, zookeeper: int) -> None:
    (folder / "token").chmod(0o644)
    assert states(write(folder, zookeeper))["token_file"] == "wrong"


def test_a_data_folder_that_is_a_file_is_wrong(folder: Path, zookeeper: int) -> None:
    (folder / "data").touch()
    assert states(write(folder, zookeeper))["data"] == "wrong"


def test_an_address_in_use_is_wrong_unless_the_server_itself_runs(folder: Path, zookeeper: int) -> None:
    file = write(folder, zookeeper, f'listen = "127.0.0.1:{zookeeper}"\n')
    assert states(file)["listen"] == "wrong"
    lock = lock_data_folder(folder / "data")
    try:
        found = states(file)
    finally:
        os.close(lock)
    assert (found["listen"], found["data"]) == ("ok", "warning")


def test_zookeeper_that_is_away_is_a_warning_and_a_wrong_url_a_mistake(folder: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        file = write(folder, closed.getsockname()[1])
        assert states(file)["zookeeper"] == "warning"
    file.write_text(file.read_text().replace("zk://", "http://"))
    assert states(file)["zookeeper"] == "wrong"


def test_the_exit_status_is_0_or_2_and_json_says_the_same(
    folder: Path, zookeeper: int, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(folder, zookeeper)
    assert main(["server", "--check", "--config", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "a server with this configuration can start"
    file.write_text("name = ")
    assert main(["server", "--check", "--config", str(file), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["checks"][0]["state"]) == (False, CheckState.WRONG.value)


def test_the_schema_in_the_repository_is_that_of_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    made = json.dumps(schema_of_config(), indent=2, ensure_ascii=False) + "\n"
    assert SCHEMA.read_text() == made, "replitree server --schema > deploy/server.schema.json"
    assert main(["server", "--schema"]) == 0
    assert capsys.readouterr().out == made


def test_every_setting_is_described() -> None:
    properties = schema_of_config()["properties"]
    assert set(properties) == set(ServerConfig.__struct_fields__)
    assert [name for name, each in properties.items() if not each.get("description")] == []
