"""`replitree token`: tokens are shown once, or written where only their owner reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from replitree.cli.main import main
from replitree.replica.kit.tokens import read_tokens


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def test_token_is_shown_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["token", "create", "etl", "--role", "write", "--table", "events", "--file", str(file)]
    assert main([*words, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["name"], made["role"], made["tables"]) == ("etl", "write", ["events"])
    assert made["token"].startswith("named.etl.")
    assert main(["token", "list", "--file", str(file), "--json"]) == 0
    listed = capsys.readouterr().out
    assert [each["name"] for each in json.loads(listed)["tokens"]] == ["etl"]
    assert made["token"] not in listed + file.read_text()
    assert main(["token", "create", "reader", "--file", str(file)]) == 0
    assert capsys.readouterr().out.strip().startswith("named.reader.")
    assert main(words) == 2
    assert "there is a token 'etl'" in capsys.readouterr().err
    assert main(["token", "revoke", "etl", "--yes", "--file", str(file), "--json"]) == 0
    assert [each.name for each in read_tokens(file).tokens] == ["reader"]


def test_token_goes_into_a_private_file(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "etl.token"
    words = ["token", "create", "etl", "--file", str(file), "--output", str(output)]
    assert main(words) == 0
    text = output.read_text().strip()
    assert output.stat().st_mode & 0o777 == 0o600
    assert text.startswith("named.etl.")
    assert text not in capsys.readouterr().out
    assert main(words) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["create", "etl", "--role", "root"], "--role root: there are read, write, admin"),
        (["create", "E"], "can't be a token's name"),
        (["create", "etl", "--table", "a b"], "a b"),
        (["revoke", "none", "--yes"], "there is no token 'none'"),
    ],
)
def test_mistake_is_one_line(file: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["token", *words, "--file", str(file)]) == 2
    assert message in capsys.readouterr().err
    assert not file.exists()


def test_without_a_cluster_the_file_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REPLITREE_DIR", str(tmp_path))
    assert main(["token", "list"]) == 2
    assert "--file" in capsys.readouterr().err
