"""Structured logs: one JSON object per line on standard error; never a secret, never a row."""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec
from typing_extensions import override

_encode = msgspec.json.Encoder(enc_hook=str).encode


class JsonFormatter(logging.Formatter):
    """One line of JSON per record: time, level, event, then the fields."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _encode(line).decode()


class Log:
    """A logger that takes an event and its fields."""

    def __init__(self, **always: object) -> None:
        self._logger = logging.getLogger("replitree.replica")
        self._always = always

    def bind(self, **fields: object) -> Log:
        """Return a log that adds these fields to every line."""
        return Log(**{**self._always, **fields})

    def info(self, event: str, **fields: object) -> None:
        """Log something that an operator may want to know."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Log something that mends itself but should not happen often."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Log something that somebody has to look at."""
        self._write(logging.ERROR, event, fields)

    def defect(self, event: str, **fields: object) -> None:
        """Log a defect of ours, with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, fields, traceback=True)

    def _write(self, level: int, event: str, fields: dict[str, object], traceback: bool = False) -> None:
        self._logger.log(level, event, extra={"fields": {**self._always, **fields}}, exc_info=traceback)


def set_up_logging(level: str = "INFO") -> None:
    """Send this process's logs as JSON lines to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("replitree").setLevel(level)
    logging.getLogger("kazoo").setLevel(logging.ERROR)
