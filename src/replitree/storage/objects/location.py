"""Where an object store is, from its URL.

``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix?account=name``, ``file:///folder``, ``memory:///``.  A
server that is not the provider's is named in the query:
``s3://bucket/prefix?endpoint=https://host:port&region=name``.

Guarantees:

* A URL with credentials is refused, and the message does not show it: `replitree.storage.objects.opening` looks for them.
* Without TLS only this machine is talked to, unless the URL says ``insecure=true``: rows could be read on their way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from replitree.errors import BadInput

REGION_DEFAULT = "us-east-1"
CREDENTIALS_FILE_VARIABLE = "REPLITREE_STORE_CREDENTIALS"

AMAZON, GOOGLE, AZURE = "s3", "gs", "az"
BUCKETS = (AMAZON, GOOGLE, AZURE)
"""Schemes of stores that are servers."""

_FORMS = (
    "s3://bucket/prefix[?endpoint=https://host:port&region=name], gs://bucket/prefix, az://container/prefix?account=name,"
    " file:///folder or memory:///"
)
_PREFIX = re.compile(r"(?:[A-Za-z0-9._=~+-]+(?:/[A-Za-z0-9._=~+-]+)*)?")
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
_NAMES = {
    AMAZON: (re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"), "bucket: 3 to 63 of a-z, 0-9, dot and dash"),
    GOOGLE: (
        re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
        "bucket: 3 to 222 of a-z, 0-9, dot, dash and underscore",
    ),
    AZURE: (re.compile(r"[a-z0-9](?:-?[a-z0-9]){2,62}"), "container: 3 to 63 of a-z, 0-9 and single dashes"),
}
_OPTIONS = {
    AMAZON: {"endpoint", "region", "insecure"},
    GOOGLE: {"endpoint", "insecure"},
    AZURE: {"account", "endpoint", "insecure"},
}
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_SECRETS = ("aws_", "access", "secret", "account_key", "key", "sas", "sig", "token", "password")
"""What names of options begin with whose values may be secrets."""


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A URL taken apart.  ``str`` gives it back.

    Attributes
    ----------
    scheme
        ``s3``, ``gs``, ``az``, ``file`` or ``memory``.
    place
        The bucket, the container, or the folder's path.
    prefix
        What all keys in a bucket begin with; no slash at its ends.
    endpoint
        URL of a server that is not the provider's; empty for the provider's.
    region
        Name that requests to S3 are signed for.
    insecure
        Talk to another machine without TLS.
    account
        The storage account of an Azure container.
    """

    scheme: str
    place: str = ""
    prefix: str = ""
    endpoint: str = ""
    region: str = REGION_DEFAULT
    insecure: bool = False
    account: str = ""

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
        >>> StoreLocation.parse("az://lake/tables?account=example").account
        'example'
        """
        try:
            parts = urlsplit(url)
            options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError:
            # Without the URL and without the cause: both may have credentials in them.
            raise BadInput(f"this is no URL of an object store; use {_FORMS}") from None
        # Before anything else is looked at, so that no other message shows the URL.
        if "@" in parts.netloc or any(name.lower().startswith(_SECRETS) for name in options):
            raise BadInput(
                "the URL of an object store has credentials; put them into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or into"
                f" a file that {CREDENTIALS_FILE_VARIABLE} names, or use the identity of your machine (docs/cloud-identity.md)"
            )
        match parts.scheme:
            case "s3" | "gs" | "az":
                return _bucket(parts.scheme, parts.netloc, parts.path.strip("/"), options)
            case "file" if not parts.netloc and not options and len(parts.path) > 1:
                return cls("file", unquote(parts.path))
            case "memory" if not parts.netloc and not options and parts.path in ("", "/"):
                return cls("memory")
        raise BadInput(f"{url!r} is no URL of an object store; use {_FORMS}")

    @property
    def is_bucket(self) -> bool:
        """Whether the store is a server's, which wants to know who asks."""
        return self.scheme in BUCKETS

    def __str__(self) -> str:  # type: ignore[explicit-override]  # `typing.override` is not in Python 3.11
        """Return the URL."""
        if not self.is_bucket:
            return f"{self.scheme}://{quote(self.place) or '/'}"
        said = {
            "account": self.account,
            "endpoint": self.endpoint,
            "region": self.region if self.region != REGION_DEFAULT else "",
            "insecure": "true" if self.insecure else "",
        }
        options = "&".join(f"{name}={value}" for name, value in said.items() if value)
        return f"{self.scheme}://{self.place}/{self.prefix}" + (f"?{options}" if options else "")


def _bucket(scheme: str, bucket: str, prefix: str, options: Mapping[str, str]) -> StoreLocation:
    pattern, rule = _NAMES[scheme]
    if pattern.fullmatch(bucket) is None or (scheme == AZURE and len(bucket) > 63):
        raise BadInput(f"{bucket!r} is no name of a {rule}")
    if _PREFIX.fullmatch(prefix) is None or ".." in prefix.split("/"):
        raise BadInput(f"the prefix {prefix!r} of an object store may have letters, digits, . _ = ~ + - and / only")
    if unknown := sorted(set(options) - _OPTIONS[scheme]):
        known = ", ".join(sorted(_OPTIONS[scheme]))
        raise BadInput(f"the URL of an object store has no option {unknown[0]!r}; {scheme}:// has {known}")
    account = options.get("account", "")
    if scheme == AZURE and _ACCOUNT.fullmatch(account) is None:
        raise BadInput(
            f"az://{bucket} must name its storage account, 3 to 24 of a-z and 0-9: az://{bucket}/{prefix}?account=name"
        )
    endpoint, insecure = options.get("endpoint", ""), options.get("insecure", "false") == "true"
    if endpoint:
        _check_endpoint(endpoint, insecure)
    return StoreLocation(scheme, bucket, prefix, endpoint, options.get("region") or REGION_DEFAULT, insecure, account)


def _check_endpoint(endpoint: str, insecure: bool) -> None:
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


__all__ = ["AMAZON", "AZURE", "BUCKETS", "CREDENTIALS_FILE_VARIABLE", "GOOGLE", "REGION_DEFAULT", "StoreLocation"]
