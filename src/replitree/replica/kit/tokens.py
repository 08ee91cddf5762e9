"""The secrets that a request must have: the cluster's own token, or one of a file of named tokens.

The file is JSON, with hashes of tokens, and for each its role and the tables that it is for.

Guarantees:

* The server looks at the file at most once in `LOOK_S` seconds, and a change counts from then on, without a restart.  While the
  file can't be read the tokens that were known last are valid; a missing file has none.
* It is written by a command at a time (`create_token`, `revoke_token`), as a whole, with mode 0600, and never has a token.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from replitree.decoding import json_decoder
from replitree.errors import BadInput, NotAuthorized, NotPermitted
from replitree.protocol.core.layout import check_table_name
from replitree.protocol.sharded.places import sharded_name
from replitree.replica.kit.config import check_private
from replitree.wire.named_token import NamedToken, Role, make_named_token

LOOK_S = 1.0
FORMAT = 1
TOKENS_MAX = 10_000
FILE_BYTES_MAX = 16 << 20


class TokenRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of a token.

    Attributes
    ----------
    name, role
        The token's.
    digest, ticket_key
        See `NamedToken`.
    tables
        Names of the tables that it is for; None: all, and what belongs to no table.
    made
        When it was made, as ISO 8601 in UTC.
    """

    name: str
    role: Role
    digest: str
    ticket_key: str
    tables: tuple[str, ...] | None = None
    made: str = ""


class TokenList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file."""

    tokens: tuple[TokenRecord, ...] = ()
    format: int = FORMAT


class Grant(NamedTuple):
    """What a request may do: the name, the role and the tables of its token; None: all tables, and what belongs to none."""

    name: str
    role: Role
    tables: frozenset[str] | None = None

    def permit(self, needed: Role, table: str | None) -> None:
        """Do nothing when this is enough.

        Parameters
        ----------
        needed
            The role that the request needs.
        table
            The table, or shard of one, that it is about; None: about no table.

        Raises
        ------
        NotPermitted
            It is not.
        """
        if not self.role.covers(needed):
            raise NotPermitted(
                f"token {self.name!r} has the role {self.role}, and this needs {needed}: use another token"
                " (`replitree token create --role`)"
            )
        if self.tables is not None and (table is None or sharded_name(table) not in self.tables):
            about = "what belongs to no table" if table is None else f"table {sharded_name(table)}"
            raise NotPermitted(
                f"token {self.name!r} is for the tables {', '.join(sorted(self.tables))}, not for {about}"
            )


EVERYTHING = Grant("cluster", Role.ADMIN)
"""What the cluster's own token grants."""


def check_token(header: str, token: bytes) -> None:
    """Look for the secret in an ``Authorization`` header.

    Raises
    ------
    NotAuthorized
        It is not there.
    """
    scheme, _, given = header.partition(" ")
    # A general server gives bytes that are not ASCII as lone surrogates; they must not be an error of ours.
    if scheme != "Bearer" or not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token):
        raise NotAuthorized("the token is missing or wrong: use the token of this cluster (REPLITREE_TOKEN)")


class TokenFile:
    """The named tokens that a server knows.  Used on one thread.

    Parameters
    ----------
    path
        The file; None: there are none.
    problem
        Is told why the file can't be read, once for each change of the file.

    Raises
    ------
    BadInput
        The file is there and can't be read, or others can read it.
    """

    def __init__(self, path: Path | None, problem: Callable[[str], None]) -> None:
        self._path = path
        self._problem = problem
        self._known: dict[str, TokenRecord] = {}
        self._stamp: object = None
        self._looked_at = time.monotonic()
        if path is not None:
            self._stamp = _stamp(path)
            self._known = {each.name: each for each in read_tokens(path).tokens}

    def grant(self, token: NamedToken) -> Grant | None:
        """Return what a token grants; None when it is none."""
        found = self._find(token.name)
        if found is None or not hmac.compare_digest(found.digest, token.digest):
            return None
        return _granted(found)

    def signer(self, name: str) -> tuple[Grant, bytes] | None:
        """Return what the token of a name grants, and the key of its tickets; None when there is none."""
        found = self._find(name)
        return None if found is None else (_granted(found), found.ticket_key.encode())

    def _find(self, name: str) -> TokenRecord | None:
        now = time.monotonic()
        if self._path is not None and now - self._looked_at >= LOOK_S:
            self._looked_at = now
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._known = {each.name: each for each in read_tokens(self._path).tokens}
                except BadInput as error:
                    self._problem(str(error))
        return self._known.get(name)


def _granted(record: TokenRecord) -> Grant:
    return Grant(record.name, record.role, None if record.tables is None else frozenset(record.tables))


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)


def read_tokens(path: Path) -> TokenList:
    """Read a file of tokens; a missing one has none.

    Raises
    ------
    BadInput
        It can't be read, or is not such a file, or others can read it.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return TokenList()
    except OSError as error:
        raise BadInput(f"can't read the file of tokens {path}: {error.strerror}") from error
    check_private(path, "the file of tokens")
    return decode_tokens(data, str(path))


def decode_tokens(data: bytes, where: str) -> TokenList:
    """Read the content of a file of tokens.

    Raises
    ------
    BadInput
        It is not such a content.
    """
    if len(data) > FILE_BYTES_MAX:
        raise BadInput(f"{where} has more than {FILE_BYTES_MAX} bytes: it is no file of tokens")
    try:
        found = json_decoder(TokenList).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{where} is no file of tokens: {error}") from error
    if found.format != FORMAT:
        raise BadInput(f"{where} was written by a newer replitree (format {found.format}): upgrade this one")
    names = [each.name for each in found.tokens]
    if len(set(names)) < len(names) or len(names) > TOKENS_MAX:
        raise BadInput(f"{where} has a name twice, or more than {TOKENS_MAX} tokens")
    return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    try:
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise BadInput(f"can't open the folder {path.parent}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, content: TokenList) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def create_token(path: Path, name: str, role: Role, tables: tuple[str, ...] | None) -> NamedToken:
    """Make a token and write it down; return it, for the only time.

    Raises
    ------
    BadInput
        There is one of this name, or a name can't be one, or the file can't be read.
    """
    made = make_named_token(name)
    for table in tables or ():
        check_table_name(table)
    with _locked(path):
        before = read_tokens(path)
        if any(each.name == name for each in before.tokens):
            raise BadInput(f"there is a token {name!r} in {path}: revoke it first, or choose another name")
        when = datetime.now(UTC).isoformat(timespec="seconds")
        record = TokenRecord(name, role, made.digest, made.ticket_key, tables, when)
        content = TokenList((*before.tokens, record))
        decode_tokens(msgspec.json.encode(content), str(path))
        _write(path, content)
    return made


def revoke_token(path: Path, name: str) -> None:
    """Forget a token; its tickets end with it.

    Raises
    ------
    BadInput
        There is none of this name, or the file can't be read.
    """
    with _locked(path):
        before = read_tokens(path)
        left = tuple(each for each in before.tokens if each.name != name)
        if len(left) == len(before.tokens):
            raise BadInput(f"there is no token {name!r} in {path}; `replitree token list` shows them")
        _write(path, TokenList(left))


__all__ = [
    "EVERYTHING",
    "LOOK_S",
    "Grant",
    "TokenFile",
    "TokenList",
    "TokenRecord",
    "check_token",
    "create_token",
    "decode_tokens",
    "read_tokens",
    "revoke_token",
]
