"""Where an object store is: ``s3://bucket/prefix``, ``file:///folder``, ``memory:///``.

A server that is not Amazon's is named in the query: ``s3://bucket/prefix?endpoint=https://host:port&region=name``.

Guarantees:

* Credentials come from the environment (``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``) or from a file
  in the form that Amazon's tools use.  A URL with credentials is refused, and the message does not show it.
* Credentials that a store refuses are looked for again: those that have expired may have been replaced in the file.
* Neither ``repr`` nor ``str`` of anything here has a secret.
* Without TLS only this machine is talked to, unless the URL says ``insecure=true``: rows could be read on their way.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from obstore.store import LocalStore, MemoryStore, S3Store

from replitree import private
from replitree.errors import BadInput, NotAuthorized, StoreError
from replitree.storage.objects.store import PIECE_PATIENCE_S, PIECE_TRIES, ObjectStore

if TYPE_CHECKING:
    from obstore.store import RetryConfig

REGION_DEFAULT = "us-east-1"
CREDENTIALS_FILE_VARIABLE = "REPLITREE_STORE_CREDENTIALS"
PROFILE = "default"

CONNECT_S_MAX = 5
REQUEST_S_MAX = 60

ONCE: RetryConfig = {"max_retries": 0}
"""Retries of all requests but pieces of uploads: `ObjectStore` must know when an answer did not come."""

PIECE_RETRIES: RetryConfig = {
    "max_retries": PIECE_TRIES,
    "retry_timeout": timedelta(seconds=PIECE_PATIENCE_S),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2},
}

_FORMS = "s3://bucket/prefix[?endpoint=https://host:port&region=name], file:///folder or memory:///"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"(?:[A-Za-z0-9._=~+-]+(?:/[A-Za-z0-9._=~+-]+)*)?")
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
_OPTIONS = {"endpoint", "region", "insecure"}


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that sign requests."""

    access: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A URL taken apart.  ``str`` gives it back.

    Attributes
    ----------
    scheme
        ``s3``, ``file`` or ``memory``.
    place
        The bucket, or the folder's path.
    prefix
        What all keys in a bucket begin with; no slash at its ends.
    endpoint
        URL of a server that is not Amazon's; empty for Amazon's.
    region
        Name that requests are signed for.
    insecure
        Talk to another machine without TLS.
    """

    scheme: str
    place: str = ""
    prefix: str = ""
    endpoint: str = ""
    region: str = REGION_DEFAULT
    insecure: bool = False

    @classmethod
    def parse(cls, url: str) -> StoreLocation:
        """Take a URL apart.

        Raises
        ------
        BadInput
            It is none of the forms, or has credentials.

        Examples
        --------
        >>> StoreLocation.parse("s3://lake/tables?endpoint=http://127.0.0.1:8333").prefix
        'tables'
        """
        try:
            parts = urlsplit(url)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError:
            # Without the URL and without the cause: both may have credentials in them.
            raise BadInput(f"this is no URL of an object store; use {_FORMS}") from None
        # Before anything else is looked at, so that no other message shows the URL.
        if "@" in parts.netloc or any(name.lower().startswith(("aws_", "access", "secret")) for name in options):
            raise BadInput(
                "the URL of an object store has credentials; put them into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                f" or into a file that {CREDENTIALS_FILE_VARIABLE} names"
            )
        match parts.scheme:
            case "s3":
                return _bucket(parts.netloc, parts.path.strip("/"), options)
            case "file" if not parts.netloc and not options and len(parts.path) > 1:
                return cls("file", unquote(parts.path))
            case "memory" if not parts.netloc and not options and parts.path in ("", "/"):
                return cls("memory")
        raise BadInput(f"{url!r} is no URL of an object store; use {_FORMS}")

    def __str__(self) -> str:  # type: ignore[explicit-override]  # `typing.override` is not in Python 3.11
        """Return the URL."""
        if self.scheme != "s3":
            return f"{self.scheme}://{quote(self.place) or '/'}"
        said = {
            "endpoint": self.endpoint,
            "region": self.region if self.region != REGION_DEFAULT else "",
            "insecure": "true" if self.insecure else "",
        }
        options = "&".join(f"{name}={value}" for name, value in said.items() if value)
        return f"s3://{self.place}/{self.prefix}" + (f"?{options}" if options else "")


def _bucket(bucket: str, prefix: str, options: Mapping[str, str]) -> StoreLocation:
    if _BUCKET.fullmatch(bucket) is None:
        raise BadInput(f"{bucket!r} is no name of a bucket: 3 to 63 of a-z, 0-9, dot and dash")
    if _PREFIX.fullmatch(prefix) is None or ".." in prefix.split("/"):
        raise BadInput(f"the prefix {prefix!r} of an object store may have letters, digits, . _ = ~ + - and / only")
    if unknown := sorted(set(options) - _OPTIONS):
        raise BadInput(f"the URL of an object store has no option {unknown[0]!r}; it has {', '.join(sorted(_OPTIONS))}")
    endpoint, insecure = options.get("endpoint", ""), options.get("insecure", "false") == "true"
    if endpoint:
        # `port` raises ValueError when it is read, not when the URL is parsed.
        wrong = BadInput(f"the endpoint {endpoint!r} must be http://host:port or https://host:port")
        try:
            server = urlsplit(endpoint)
            is_server = server.scheme in ("http", "https") and bool(server.hostname) and server.port != 0
        # A bracket without its other one, or a port that is none.
        except ValueError:
            raise wrong from None
        if not is_server or server.path.strip("/") or server.username:
            raise wrong
        if server.scheme == "http" and server.hostname not in _LOCAL_HOSTS and not insecure:
            raise BadInput(f"{endpoint} would carry rows unencrypted; use https, or add insecure=true to the URL")
    return StoreLocation("s3", bucket, prefix, endpoint, options.get("region") or REGION_DEFAULT, insecure)


def open_store(
    location: StoreLocation | str, *, environment: Mapping[str, str] | None = None, **settings: Any
) -> ObjectStore:
    """Open an object store.  Nothing is asked of it yet; see `probe`.

    Parameters
    ----------
    location
        Where it is.
    environment
        Where credentials are looked for; the process's own by default.
    settings
        As of `ObjectStore`.

    Raises
    ------
    BadInput
        It is no such URL.
    NotAuthorized
        There are no credentials, or their file can't be read.
    StoreError
        The folder can't be made.
    """
    if isinstance(location, str):
        location = StoreLocation.parse(location)
    if location.scheme == "memory":
        return ObjectStore(MemoryStore(), str(location), **settings)
    if location.scheme == "file":
        folder = Path(location.place)
        try:
            private.make_folder(folder, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"can't make the folder {folder} for objects: {error.strerror}") from error
        return ObjectStore(LocalStore(folder), str(location), folder=folder, **settings)
    bucket = _Bucket(location, os.environ if environment is None else environment)
    raw, pieces = bucket.open()
    return ObjectStore(raw, str(location), pieces=pieces, renew=bucket.renew, **settings)


class _Bucket:
    """A bucket and the credentials that it was opened with, which may be replaced while it is in use."""

    def __init__(self, location: StoreLocation, environment: Mapping[str, str]) -> None:
        self._location = location
        self._environment = environment
        self._keys = find_keys(environment)

    def open(self) -> tuple[S3Store, S3Store]:
        """Return the clients of `ObjectStore`: for requests, and for uploads in pieces."""
        return _s3(self._location, self._keys, ONCE), _s3(self._location, self._keys, PIECE_RETRIES)

    def renew(self) -> tuple[S3Store, S3Store] | None:
        """Return clients with the credentials that are there now; None if they are those that were refused."""
        # The file may have been rewritten: short-lived credentials are replaced there.
        keys = find_keys(self._environment)
        if keys == self._keys:
            return None
        self._keys = keys
        return self.open()


def find_keys(environment: Mapping[str, str]) -> Keys:
    """Find the credentials in an environment, or in the file that it names.

    Raises
    ------
    NotAuthorized
        There are none.
    """
    # Empty is unset: executors of Spark can take a variable over from their driver's Java only by making it empty.
    key, secret = (environment.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    if key and secret:
        return Keys(key, secret, environment.get("AWS_SESSION_TOKEN", ""))
    path = environment.get(CREDENTIALS_FILE_VARIABLE) or environment.get("AWS_SHARED_CREDENTIALS_FILE")
    if not path:
        raise NotAuthorized(
            "no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or let"
            f" {CREDENTIALS_FILE_VARIABLE} name a file with them"
        )
    # Secrets may have percent signs, which the default would take for references.
    file = configparser.ConfigParser(interpolation=None)
    try:
        file.read_string(Path(path).read_text())
        section = file[PROFILE]
        return Keys(
            section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token", "")
        )
    # `from None`: a parser's error quotes the line that it can't read, which may be a secret.
    except (OSError, UnicodeDecodeError, configparser.Error, KeyError):
        raise NotAuthorized(
            f"{path} can't be read as credentials: it needs a section [{PROFILE}] with aws_access_key_id and"
            " aws_secret_access_key"
        ) from None


def _s3(location: StoreLocation, keys: Keys, retries: RetryConfig) -> S3Store:
    server: dict[str, Any] = {"endpoint": location.endpoint} if location.endpoint else {}
    if keys.session:
        server["session_token"] = keys.session
    return S3Store(
        location.place,
        prefix=location.prefix or None,
        region=location.region,
        access_key_id=keys.access,
        secret_access_key=keys.secret,
        client_options={
            "allow_http": location.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=CONNECT_S_MAX),
            "timeout": timedelta(seconds=REQUEST_S_MAX),
        },
        retry_config=retries,
        **server,
    )


__all__ = ["Keys", "StoreLocation", "find_keys", "open_store"]
