"""What `up` writes into a replica's configuration, and what it leaves."""

from __future__ import annotations

import tomllib

import pytest

from replitree.client.transport.server_file import parse_setting, rewritten
from replitree.errors import BadInput

MANAGED = {"name": "r1", "zookeeper": "zk://127.0.0.1:2/replitree", "data": "/d/r1/data", "token_file": "/d/token"}


def test_new_file_has_what_a_server_needs() -> None:
    found = tomllib.loads(rewritten("", MANAGED, "r1/server.toml"))
    assert found == {**MANAGED, "listen": "127.0.0.1:0", "tables": ["*"]}
    assert tomllib.loads(rewritten(rewritten("", MANAGED, "x"), MANAGED, "x")) == found


def test_settings_comments_and_tables_of_users_stay() -> None:
    text = (
        '# mine\nzookeeper = "zk://127.0.0.1:1/replitree"\nold_parts_lifetime_s = 86400 # a day\nlisten = "127.0.0.1:9000"\n'
        'name = "r1"\n\n[stores]\nname = "file:///lake"\n'
    )
    found = rewritten(text, MANAGED, "r1/server.toml")
    assert "# mine\n" in found
    assert "old_parts_lifetime_s = 86400 # a day\n" in found
    values = tomllib.loads(found)
    assert values["zookeeper"] == MANAGED["zookeeper"]
    assert (values["listen"], values["stores"]) == ("127.0.0.1:9000", {"name": "file:///lake"})


def test_a_setting_that_is_said_replaces_the_one_that_is_there() -> None:
    found = rewritten("merge_threads = 1\n", {**MANAGED, "merge_threads": 4}, "x")
    assert tomllib.loads(found)["merge_threads"] == 4
    assert found.count("merge_threads") == 1


@pytest.mark.parametrize("text", ["name = ", 'zookeeper = """\na\n"""\n', "x = 1\nx = 2\n"])
def test_a_file_that_can_not_be_rewritten_is_left_and_named(text: str) -> None:
    with pytest.raises(BadInput, match=r"r1/server\.toml"):
        rewritten(text, MANAGED, "r1/server.toml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("old_parts_lifetime=1", "did you mean 'old_parts_lifetime_s'"),
        ("x", "expected a setting"),
        ("merge=", "expected"),
    ],
)
def test_a_setting_that_is_none_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        parse_setting(text)


def test_values_are_toml_or_text() -> None:
    assert parse_setting("check_interval_s = 0.5") == ("check_interval_s", 0.5)
    assert parse_setting("zero_copy=false") == ("zero_copy", False)
    assert parse_setting("merge=fetch") == ("merge", "fetch")
    assert parse_setting('tables=["a"]') == ("tables", ["a"])
