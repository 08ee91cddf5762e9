"""Tickets: what a Spark task sends in place of the cluster's token.

A ticket names a table, what may be asked of that table, and until when; its end is the HMAC-SHA256 of the rest under the token.
One that is made of a named token (`replitree.wire.named_token`) says that name, too, and opens nothing that the token does not.
So the driver makes tickets without a request, a replica checks them without a memory, and a task learns nothing of the token.

What a ticket opens, `ROUTES` says.  With `reads` these are the files of the table's parts, and the leases of reads.  With an
upload these are the files of that upload.  No ticket commits, changes or drops anything, and none opens another table.

Absent on purpose: withdrawing one ticket.  It ends with its time; all of them end when the cluster gets another token.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import NamedTuple

from replitree.wire.named_token import read_named_token

TICKET_S = 7 * 24 * 3600
"""How long a ticket is valid, in seconds."""

_PREFIX = "ticket"
_FIELDS_NAMED = 7
"""Fields of a ticket that was made of a named token, its signature included; one of the cluster's own token has one less."""
_PART = "/v1/tables/{table}/parts/{part}"
_UPLOAD = "/v1/tables/{table}/uploads/{upload}"

READ_ROUTES = frozenset(
    {
        ("GET", "/v1/tables/{table}/bundle"),
        ("GET", f"{_PART}/manifest"),
        ("GET", f"{_PART}/files/{{file}}"),
        ("GET", f"{_PART}/files/{{file}}/sums"),
        ("POST", f"{_PART}/check"),
        ("POST", "/v1/tables/{table}/leases/{lease}"),
    }
)
"""What a ticket with `reads` opens: methods and paths, as the replica's router names them."""

UPLOAD_ROUTES = frozenset(
    {
        ("PUT", f"{_UPLOAD}/{{partition}}/{{file}}"),
        ("PUT", f"{_UPLOAD}/tasks/{{attempt}}/{{partition}}/{{file}}"),
        ("POST", f"{_UPLOAD}/objects"),
        # A job that is aborted runs with the ticket of its tasks.
        ("DELETE", _UPLOAD),
    }
)
"""What a ticket with an upload opens."""


class Ticket(NamedTuple):
    """What a task may ask replicas for.

    Attributes
    ----------
    table
        Its name.
    until
        Seconds since 1970: the ticket is refused from then on.
    reads
        Whether the task may read the table's parts.
    upload
        Id of the upload that the task may fill; "": none.
    """

    table: str
    until: int
    reads: bool = False
    upload: str = ""

    def signed(self, token: str) -> str:
        """Return the text that a task sends as its token.

        >>> Ticket("events", 1700000000, reads=True).signed("secret")[:27]
        'ticket.events.1700000000.r.'
        """
        text = ".".join((_PREFIX, self.table, str(self.until), "r" if self.reads else "", self.upload))
        named = read_named_token(token)
        if named is not None:
            text = f"{text}.{named.name}"
        return f"{text}.{_signature(text, (named.ticket_key if named is not None else token).encode())}"

    def opens(self, method: str, route: str, names: Mapping[str, str], now: float) -> bool:
        """Tell whether a request is allowed.

        Parameters
        ----------
        method, route, names
            As the replica's router has matched the request: the path with its parameters, and their values.
        now
            Seconds since 1970.
        """
        if now >= self.until or names.get("table") != self.table:
            return False
        asked = ("GET" if method == "HEAD" else method, route)
        is_read = self.reads and asked in READ_ROUTES
        return is_read or (bool(self.upload) and names.get("upload") == self.upload and asked in UPLOAD_ROUTES)


def signer_of(text: str) -> str:
    """Return the name of the token that a ticket says it was made of; "": the cluster's own token.

    >>> signer_of("ticket.events.1700000000.r..etl.0a1b"), signer_of("ticket.events.1700000000.r..0a1b")
    ('etl', '')
    """
    fields = text.split(".")
    return fields[5] if len(fields) == _FIELDS_NAMED else ""


def read_ticket(text: str, token: bytes) -> Ticket | None:
    """Return the ticket that a text is; None unless it was signed with this token, or a named token's key."""
    said, _, signature = text.rpartition(".")
    # A general server gives bytes that are not ASCII as lone surrogates; `compare_digest` takes ASCII text only.
    if not text.isascii() or not hmac.compare_digest(signature, _signature(said, token)):
        return None
    prefix, table, until, reads, upload = said.split(".")[: _FIELDS_NAMED - 2]
    return Ticket(table, int(until), reads == "r", upload) if prefix == _PREFIX else None


def _signature(text: str, token: bytes) -> str:
    return hmac.new(token, text.encode(), hashlib.sha256).hexdigest()


__all__ = ["READ_ROUTES", "TICKET_S", "UPLOAD_ROUTES", "Ticket", "read_ticket", "signer_of"]
