"""Configuration files and tokens that are wrong, and what is said of them."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from replitree.errors import BadInput, InvalidName, ReplicaBusy, StoreError
from replitree.protocol.core.effects import Owner
from replitree.replica.kit.config import ENVIRONMENT, NO_FILE, ServerConfig, load_config, read_token
from replitree.replica.kit.data_folder import lock_data_folder
from replitree.wire.identity import Identity, decode_identity, machine_id, own_identity, probe_owner
from tests.project.source import ROOT

GOOD = 'name = "r1"\nzookeeper = "zk://127.0.0.1:2181"\ndata = "/tmp/data"\ntoken_file = "/tmp/token"\n'


def test_a_good_file_is_taken_with_its_defaults(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(GOOD)
    config = load_config(tmp_path / "c.toml")
    assert (config.name, config.listen, config.tables) == ("r1", "127.0.0.1:0", ("*",))
    assert config.hosts("anything")


def test_every_option_is_documented_with_its_default() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    documented = tomllib.loads(text.partition("```toml\n")[2].partition("```")[0])
    assert set(documented) == {option.name for option in msgspec.structs.fields(ServerConfig)}
    own = ("name", "zookeeper", "data", "token_file", "listen", "advertise", "stores")
    config = msgspec.convert({option: documented[option] for option in own}, ServerConfig)
    assert msgspec.convert(documented, ServerConfig) == config


def test_every_setting_can_be_given_by_a_variable_of_the_environment(tmp_path: Path) -> None:
    own: dict[str, Any] = {"name": "r1", "zookeeper": "zk://z:2181", "data": "/d", "token_file": "/t"}
    values: dict[str, object] = {**msgspec.structs.asdict(ServerConfig(**own)), "tables": ("a", "b"), "stores": {}}
    spelt = {
        key: ",".join(value) if isinstance(value, tuple) else value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
    }
    environment = {ENVIRONMENT + key.upper(): str(text) for key, text in spelt.items()}
    assert load_config(NO_FILE, environment) == ServerConfig(**{**own, "tables": ("a", "b")})


def test_a_variable_comes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(GOOD + "merges_max = 2\nfetch_threads = 3\n")
    given = {
        "REPLITREE_SET_MERGES_MAX": "5",
        "REPLITREE_SET_STORES": '{cold = "file:///cold"}',
        "REPLITREE_URL": "zk://z",
    }
    config = load_config(tmp_path / "c.toml", given)
    assert (config.merges_max, config.fetch_threads, config.stores) == (5, 3, {"cold": "file:///cold"})


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("REPLITREE_SET_MERGE_MAX", "5", "names no setting of a server; did you mean REPLITREE_SET_MERGES_MAX"),
        ("REPLITREE_SET_listen", "a:1", "did you mean REPLITREE_SET_LISTEN"),
        ("REPLITREE_SET_COLOUR", "red", "names no setting"),
        ("REPLITREE_SET_MERGES_MAX", "many", "REPLITREE_SET_MERGES_MAX has no value of merges_max"),
        ("REPLITREE_SET_MERGES_MAX", "0", "REPLITREE_SET_MERGES_MAX .* >= 1"),
        ("REPLITREE_SET_MERGE", "sometimes", "REPLITREE_SET_MERGE has no value of merge: use self or fetch"),
        ("REPLITREE_SET_LISTEN", "nowhere", "listen"),
    ],
)
def test_a_wrong_variable_is_named_with_its_mistake(tmp_path: Path, variable: str, text: str, words: str) -> None:
    (tmp_path / "c.toml").write_text(GOOD)
    with pytest.raises(BadInput, match=words):
        load_config(tmp_path / "c.toml", {variable: text})


def test_a_setting_that_is_missing_is_named_with_its_variable() -> None:
    with pytest.raises(BadInput, match=r"the environment: zookeeper is missing; .*REPLITREE_SET_ZOOKEEPER"):
        load_config(NO_FILE, {"REPLITREE_SET_NAME": "r1"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "not TOML"),
        ('name = "r1"\n', "zookeeper"),
        (GOOD + 'colour = "red"\n', "colour names no setting"),
        ('name = "r1"\nzookeper = "zk://z"\n', "zookeper names no setting of a server; did you mean zookeeper?"),
        (GOOD + 'listen = "nowhere"\n', "listen"),
        (GOOD + "fetch_threads = 'many'\n", "fetch_threads: Expected"),
        (GOOD + 'merge = "sometimes"\n', "merge: use self or fetch"),
        (GOOD + "merge_threads = 0\n", "merge_threads"),
        (GOOD + "clean_log_delay_s = 0.0\n", "clean_log_delay_s"),
        (GOOD + "deduplication_window = 0\n", "deduplication_window"),
        (GOOD + "tls_certificate = 'c'\n", "tls_certificate is set and tls_key is not"),
        (GOOD + "tls_clients = 'with_certificate'\n", "needs tls_ca"),
        (GOOD + "max_replicated_logs_to_keep = 50\n", "less than min_replicated_logs_to_keep"),
    ],
)
def test_a_wrong_file_is_named_with_its_mistake(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(BadInput, match=words):
        load_config(tmp_path / "c.toml")


def test_a_missing_file_and_a_strange_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"can't read"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "c.toml").write_text(GOOD.replace('"r1"', '"../r1"'))
    with pytest.raises(InvalidName):
        load_config(tmp_path / "c.toml")


def test_a_token_must_be_long_and_private(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x" * 32)
    token.chmod(0o644)
    with pytest.raises(BadInput, match="chmod 600"):
        read_token(token)
    token.chmod(0o600)
    assert read_token(token) == "x" * 32
    token.write_text("short")
    with pytest.raises(BadInput, match="16"):
        read_token(token)
    with pytest.raises(BadInput, match=r"can't read"):
        read_token(tmp_path / "none")


def test_a_data_folder_has_one_process(tmp_path: Path) -> None:
    lock = lock_data_folder(tmp_path / "data")
    with pytest.raises(ReplicaBusy, match="another process"):
        lock_data_folder(tmp_path / "data")
    os.close(lock)
    os.close(lock_data_folder(tmp_path / "data"))


def test_a_data_folder_that_the_disk_refuses_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"can't use the data folder .*check the disk"):
        lock_data_folder(tmp_path / "file" / "data")


def test_a_process_is_dead_only_when_that_is_proven() -> None:
    me = own_identity("127.0.0.1:1")
    assert decode_identity(me.encode()) == me
    assert probe_owner(me.encode()) is Owner.ALIVE
    reborn = Identity(me.address, me.incarnation, me.machine, me.pid, me.started - 1)
    assert probe_owner(reborn.encode()) is Owner.DEAD
    gone = Identity(me.address, me.incarnation, me.machine, 2**22 + 1, me.started)
    assert probe_owner(gone.encode()) is Owner.DEAD
    elsewhere = Identity(me.address, me.incarnation, "another machine", 2**22 + 1, me.started)
    assert probe_owner(elsewhere.encode()) is Owner.UNCLEAR
    assert probe_owner(b"garbage") is Owner.UNCLEAR
    assert "/" in machine_id()
