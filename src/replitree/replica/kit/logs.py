"""Structured logs on standard error, a line of JSON or of text for each event; never a secret, never a row.

The libraries below us log what they were given: a line of a request's head, the value in an exception's message.  So of their
records only the fixed text is kept, the kind of the exception, and the places in the code; and the cluster's token is masked in
every line, those of libraries included.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from typing import Any

import msgspec
from typing_extensions import override

MASK = "***"

_QUOTED = frozenset({"replitree", "kazoo"})
"""Loggers whose messages are written whole: they never have a part of a request."""

_BARE = re.compile(r"[!#-~]+")
"""Values of a line of text that need no quotation marks."""

_encode = msgspec.json.Encoder(enc_hook=str).encode
_secrets: set[str] = set()


class LineFormatter(logging.Formatter):
    """One line per record: time, level, event, then the fields.

    Parameters
    ----------
    log_format
        ``json``: an object; ``text``: ``2026-01-31T12:00:00.000 INFO state replica=r1 table=t``.
    """

    def __init__(self, log_format: str = "json") -> None:
        super().__init__()
        self._as_text = log_format == "text"

    @override
    def format(self, record: logging.LogRecord) -> str:
        is_ours = record.name.partition(".")[0] in _QUOTED
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            # Further lines of a library's message, and its arguments, describe objects: only the fixed text is kept.
            "event": record.getMessage() if is_ours else f"{record.name}: {(str(record.msg).splitlines() or [''])[0]}",
            **getattr(record, "fields", {}),
        }
        if record.exc_info and is_ours:
            line["traceback"] = self.formatException(record.exc_info)
        elif record.exc_info:
            # The message of a library's exception may have a value of a request: only its kind and the places are kept.
            kind, _, trace = record.exc_info
            places = (f"{each.filename}:{each.lineno} {each.name}" for each in traceback.extract_tb(trace))
            line["traceback"] = [getattr(kind, "__name__", ""), *places]
        return _text_of(line) if self._as_text else _masked(_encode(line).decode())


def _text_of(line: dict[str, Any]) -> str:
    r"""Return a line for people; a value that has spaces or control characters is written as in JSON, so a line stays one.

    >>> _text_of({"time": "12:00", "level": "info", "event": "state", "reason": "disk\nfull", "epoch": 3})
    '12:00 INFO state reason="disk\\nfull" epoch=3'
    """
    fields = dict(line)
    time, level, event = (str(fields.pop(key)) for key in ("time", "level", "event"))
    told = [event if event.isprintable() else _encode(event).decode()]
    for key, value in fields.items():
        plain = _masked(value if isinstance(value, str) else _encode(value).decode())
        told.append(f"{key}={plain if _BARE.fullmatch(plain) else _encode(plain).decode()}")
    return _masked(" ".join((time, level.upper(), *told)))


def _masked(text: str) -> str:
    for secret in _secrets:
        text = text.replace(secret, MASK)
    return text


def hide(secret: str) -> None:
    """Mask a secret in every line that this process logs from now on."""
    _secrets.update((secret, _encode(secret).decode()[1:-1]))


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
        """Log something that an operator has to look at."""
        self._write(logging.ERROR, event, fields)

    def defect(self, event: str, **fields: object) -> None:
        """Log a defect of ours, with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, fields, traceback=True)

    def _write(self, level: int, event: str, fields: dict[str, object], traceback: bool = False) -> None:
        self._logger.log(level, event, extra={"fields": {**self._always, **fields}}, exc_info=traceback)


def set_up_logging(level: str = "info", log_format: str = "json") -> None:
    """Send the logs to standard error, from a level on (``info``, ``warning``, ``error``), as ``json`` or ``text``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.ERROR if level == "error" else logging.WARNING)
    logging.getLogger("replitree").setLevel(level.upper())
    logging.getLogger("kazoo").setLevel(logging.ERROR)
