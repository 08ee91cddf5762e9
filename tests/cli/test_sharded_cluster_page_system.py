"""The guide to a sharded table on several machines: its configuration and its commands run, in their order."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replitree.client.cluster import make_token
from replitree.coordination.embedded import EmbeddedZooKeeper
from replitree.coordination.supervise import Supervised
from tests.cli.commands import Commands, Ran
from tests.project.source import ROOT
from tests.waiting import wait_for

pytestmark = [pytest.mark.system, pytest.mark.nightly]

PAGE = (ROOT / "docs" / "sharded-cluster.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^## \d", re.MULTILINE)
START_S_MAX, STOP_S_MAX = 60.0, 30.0


class Machines:
    """Servers as the page configures them, all on this machine, and commands against them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._commands = folder, Commands()
        self._zookeeper = EmbeddedZooKeeper(folder / "zookeeper", durable=False)
        self._zookeeper.start()
        make_token(folder / "token")
        self._running: dict[str, Supervised] = {}
        self.settings: dict[str, Any] = {}

    def start(self, config: str) -> None:
        """Start a server by the path of its file on the page; what differs from machine to machine is made up."""
        name = Path(config).stem
        data = self._folder / name
        data.mkdir(exist_ok=True)
        here = {"name": name, "zookeeper": self._zookeeper.url, "data": str(data), "listen": "127.0.0.1:0"}
        settings = {**self.settings, **here, "token_file": str(self._folder / "token")}
        del settings["advertise"]
        file = self._folder / Path(config).name
        file.write_text("".join(f'{key} = "{value}"\n' for key, value in settings.items()))
        log = self._folder / f"{name}-{len(list(self._folder.glob('*.log')))}.log"
        command = [sys.executable, "-m", "replitree.cli.main", "server", "--config", str(file)]
        self._running[name] = Supervised(command, log)
        wait_for(lambda: log.exists() and '"ready":true' in log.read_text(), f"{name} serves", START_S_MAX)

    def stop(self, name: str, *, kill: bool = False) -> None:
        server = self._running.pop(name)
        (server.kill if kill else server.terminate)()
        server.wait(STOP_S_MAX)

    def run(self, *words: str) -> Ran:
        environment = {"REPLITREE_URL": self._zookeeper.url, "REPLITREE_TOKEN_FILE": str(self._folder / "token")}
        return self._commands.run(*words, environment=environment)

    def close(self) -> None:
        for name in list(self._running):
            self.stop(name)
        self._commands.close()
        self._zookeeper.stop()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()


def test_every_command_of_the_guide_does_what_the_guide_says(machines: Machines, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,v\n" + "".join(f"{number},0.5\n" for number in range(200)))
    assert "events~0       128   r1, r2\n  events~1       128   r3, r4" in PAGE
    said, given = list[str](), list(BLOCK.findall(PAGE[STEP.search(PAGE).start() :]))  # type: ignore[union-attr]
    for language, text in given:
        if language == "toml":
            machines.settings = tomllib.loads(text)
            continue
        for line in text.splitlines():
            if line.startswith("export "):
                continue
            words = [str(rows) if word == "rows.csv" else word for word in shlex.split(line)[1:]]
            said.append(" ".join(words))
            if words[0] == "server":
                if words[-1].endswith("r5.toml"):
                    machines.stop("r4", kill=True)
                machines.start(words[-1])
                continue
            if words[:2] == ["drop-replica", "events~0"]:
                assert {"r2"} == not_placed(machines, "events~0")
                for name in ("r2", "r3"):
                    machines.stop(name)
                    machines.start(f"{name}.toml")
            if words[0] == "drop-replica":
                # Refused until the session of the server that is gone has ended.
                wait_for(lambda words=words: machines.run(*words).status == 0, line, START_S_MAX)  # type: ignore[misc]
                continue
            ran = machines.run(*words)
            # The doctor warns of the folders that servers keep which do not host the shard any more.
            assert ran.status == 0 or (words == ["doctor"] and "keeps parts of a table events~" in ran.out), (line, ran)
            if words[:2] == ["status", "events"]:
                wait_for(lambda: is_level(machines), "every replica has its rows", START_S_MAX)
    assert sum(line.startswith("server") for line in said) == 6
    shards = {each["name"]: each for each in json_of(machines, "status", "events")["tables"]}
    assert {name: [each["name"] for each in shard["replicas"]] for name, shard in shards.items()} == {
        "events~0": ["r1", "r3", "r6"],
        "events~1": ["r2", "r5"],
    }
    assert sum(shard["rows"] for shard in shards.values()) == 200


def json_of(machines: Machines, *words: str) -> Any:
    ran = machines.run(*words, "--json")
    assert ran.status == 0, ran.err
    return json.loads(ran.out)


def is_level(machines: Machines) -> bool:
    """Whether every replica that a shard is placed on has joined it and has its rows."""
    for shard in json_of(machines, "status", "events")["tables"]:
        there = {each["name"]: each for each in shard["replicas"]}
        for name in shard["placed_on"]:
            if name not in there or there[name]["state"] != "active" or there[name]["lag"] != 0:
                return False
    return True


def not_placed(machines: Machines, shard: str) -> set[str]:
    found = next(each for each in json_of(machines, "status", "events")["tables"] if each["name"] == shard)
    return {each["name"] for each in found["replicas"]} - set(found["placed_on"])
