"""Lines of the log: as JSON, and as text for people; each event is one line, and no secret is in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from replitree.replica.kit.logs import LineFormatter, Log, hide, set_up_logging

SECRET = 'a "quoted" secret\\'


@pytest.fixture
def loggers() -> Iterator[None]:
    """Put the handlers and levels of the process back."""
    names = ("", "replitree", "kazoo")
    before = [(logging.getLogger(name), logging.getLogger(name).level) for name in names]
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers
    for logger, level in before:
        logger.setLevel(level)


def record(caplog: pytest.LogCaptureFixture, **fields: object) -> logging.LogRecord:
    with caplog.at_level(logging.INFO, logger="replitree"):
        Log(replica="r1").info("state", **fields)
    return caplog.records[-1]


def test_a_line_of_text_has_time_level_event_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    line = LineFormatter("text").format(record(caplog, table="t", epoch=3, reason="disk full", parts=["a", "b"]))
    time, rest = line.split(" ", 1)
    assert len(time) == len("2026-01-31T12:00:00.000")
    assert rest == 'INFO state replica=r1 table=t epoch=3 reason="disk full" parts="[\\"a\\",\\"b\\"]"'


def test_a_value_can_not_begin_another_line(caplog: pytest.LogCaptureFixture) -> None:
    assert "\n" not in LineFormatter("text").format(record(caplog, reason="one\nERROR two", other="\x1b[31m"))


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_secret_is_masked_however_it_is_written(caplog: pytest.LogCaptureFixture, log_format: str) -> None:
    hide(SECRET)
    line = LineFormatter(log_format).format(record(caplog, a=SECRET, b=[SECRET], c=f"x {SECRET} y"))
    assert "quoted" not in line
    assert line.count("***") == 3


def test_both_forms_say_the_same(caplog: pytest.LogCaptureFixture) -> None:
    one = record(caplog, epoch=3)
    fields = json.loads(LineFormatter().format(one))
    assert LineFormatter("text").format(one) == f"{fields['time']} INFO state replica=r1 epoch=3"


@pytest.mark.parametrize(("level", "told"), [("info", 3), ("warning", 2), ("error", 1)])
def test_lines_below_the_level_are_left_out(
    loggers: None, capsys: pytest.CaptureFixture[str], level: str, told: int
) -> None:
    set_up_logging(level, "text")
    for write in (Log().info, Log().warning, Log().error):
        write("something")
    assert len(capsys.readouterr().err.splitlines()) == told
