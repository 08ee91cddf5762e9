"""Openings and take-overs while a blob service of three stands still: the others are enough, and go on soon."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import replitree.tablet
from replitree.errors import StoreError
from replitree.tablet import Settings
from replitree.tablet.members.folders import make_group, open_group
from replitree.tablet.members.group import PATIENCE_S
from replitree.tablet.members.places import MemberPlace
from replitree_bench.kit.standalone import ENDS_WITH_PARENT
from tests.tablet.machine import Words
from tests.waiting import stop_process, wait_for

TOKEN = "a-token-of-some-length"
ROUNDS = 3
LOOKING = Settings(look_s=0.05)
"""Who was silent for longer than anybody waits is mended soon after."""


class Service:
    """`replitree blobd` as a process."""

    def __init__(self, folder: Path, number: int) -> None:
        command = [sys.executable, "-m", "replitree.cli.main", "blobd", "--dir", str(folder / str(number))]
        command += ["--token-file", str(folder / "token"), "--make", "g", "--number", str(number)]
        # A test that is terminated calls no fixture: the kernel ends the service then.
        self.process = subprocess.Popen([*ENDS_WITH_PARENT, *command], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address: str = json.loads(self.process.stdout.readline())["listening"]


@pytest.fixture
def services(tmp_path: Path) -> Iterator[list[Service]]:
    (tmp_path / "token").write_text(TOKEN)
    started = [Service(tmp_path, number) for number in range(3)]
    make_group(
        tmp_path / "group",
        "g",
        [MemberPlace(service=each.address, token_file="../token") for each in started],
    )
    yield started
    for each in started:
        each.process.kill()
        each.process.communicate()


@pytest.mark.system
def test_take_over_while_a_service_stands_still_is_quick(services: list[Service], tmp_path: Path) -> None:
    took_s, words = list[float](), 0
    for number in [each % 3 for each in range(ROUNDS)]:
        stopped = services[number].process
        with replitree.tablet.open(open_group(tmp_path / "group"), Words(), settings=LOOKING) as first:
            words = int(first.execute(b"a"))
            wait_for(lambda first=first: first.status().is_mended)  # type: ignore[misc]
            group = open_group(tmp_path / "group")
            stop_process(stopped.pid)
            begin_s = time.monotonic()
            with replitree.tablet.open(group, Words(), settings=LOOKING) as second:
                assert second.execute(b"b") == str(words + 1).encode()
                took_s.append(time.monotonic() - begin_s)
                assert len(second.read()) == words + 1
                os.kill(stopped.pid, signal.SIGCONT)
                wait_for(lambda second=second: second.status().is_mended)  # type: ignore[misc]
    assert statistics.median(took_s) < PATIENCE_S, took_s


@pytest.mark.system
def test_group_is_opened_and_led_and_closed_while_a_service_stands_still(
    services: list[Service], tmp_path: Path
) -> None:
    took_s, words = list[float](), 0
    for number in range(3):
        stopped = services[number].process
        stop_process(stopped.pid)
        begin_s = time.monotonic()
        group = open_group(tmp_path / "group")
        with replitree.tablet.open(group, Words(), settings=LOOKING) as leader:
            words += 1
            assert leader.execute(b"a") == str(words).encode()
            took_s.append(time.monotonic() - begin_s)
            assert [why is not None for why in group.obstacles] == [each == number for each in range(3)]
            os.kill(stopped.pid, signal.SIGCONT)
            wait_for(lambda group=group: not any(group.obstacles))  # type: ignore[misc]
            wait_for(lambda leader=leader: leader.status().is_mended)  # type: ignore[misc]
        group.close()
    assert statistics.median(took_s) < PATIENCE_S / 2, took_s


@pytest.mark.system
def test_no_thread_is_left_of_a_group_that_is_closed_while_a_service_stands_still(
    services: list[Service], tmp_path: Path
) -> None:
    before = asking_threads()
    stop_process(services[1].process.pid)
    group = open_group(tmp_path / "group")
    assert asking_threads() > before
    group.close()
    wait_for(lambda: asking_threads() <= before, deadline_s=PATIENCE_S / 2)
    for each in (services[0], services[2]):
        stop_process(each.process.pid)
    with pytest.raises(StoreError, match="2 of 3 members are needed"):
        open_group(tmp_path / "group", patience_s=0.2)
    assert asking_threads() <= before


def asking_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name in ("blob-asking", "blob-member")}
