"""Identities: which one a process has at an object store, and with what it proves that.

An identity is found anew for each process, and never travels: no plan, node, log or text of an error has its secrets.

==============================  ==========================================================================================
keys that were written down     in the environment, or in the file that ``REPLITREE_STORE_CREDENTIALS`` names; they last
                                until the store refuses them, and are then looked for once more (`Lasting`)
the chain of a provider         Amazon's (`amazon`), Google's (`google`), Azure's (`azure`), each by its provider's own
                                library: what it gives is short-lived, and that library renews it before it ends
==============================  ==========================================================================================

The client of a store asks a `StoreIdentity` for credentials with every request, at most once in `ASK_AGAIN_S`.  A provider
that does not answer is no refusal: the request waits, as it does for a store.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias

from replitree.errors import NotAuthorized, StoreError

ASK_AGAIN_S = 30.0
"""How long a client uses short-lived credentials before it asks for them again.  The libraries renew them minutes before they
end, and answer from memory until then."""

RENEW_S = 60.0
"""A chain may give other credentials each time that it is gone through, and a store refuse all of them: it is gone through once
in this time."""

_EMPTY = hashlib.sha256(b"").hexdigest()


class ProviderAway(StoreError):
    """The provider of an identity gives no credentials now; nothing was asked of the store."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that sign requests to S3."""

    access: str
    secret: str = field(repr=False)
    session: str = field(default="", repr=False)

    def for_client(self) -> dict[str, Any]:
        """Return them as obstore takes them."""
        return {"access_key_id": self.access, "secret_access_key": self.secret, "token": self.session or None}


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token of Google's or Azure's."""

    token: str = field(repr=False)

    def for_client(self) -> dict[str, Any]:
        """Return it as obstore takes it."""
        return {"token": self.token}


@dataclass(frozen=True, slots=True)
class AccountKey:
    """The key of a storage account of Azure's."""

    key: str = field(repr=False)

    def for_client(self) -> dict[str, Any]:
        """Return it as obstore takes it."""
        return {"access_key": self.key}


@dataclass(frozen=True, slots=True)
class SharedAccess:
    """A shared access signature of Azure's."""

    signature: str = field(repr=False)

    def for_client(self) -> dict[str, Any]:
        """Return it as obstore takes it."""
        return {"sas_token": self.signature}


Credential: TypeAlias = Keys | BearerToken | AccountKey | SharedAccess


class CredentialSource(Protocol):
    """Where credentials come from."""

    @property
    def name(self) -> str:
        """What was found and where, for people; without a secret."""

    @property
    def is_lasting(self) -> bool:
        """Whether they are the same until they are replaced by hand."""

    def current(self) -> Credential:
        """Return what is valid now; renewed, if that is due.

        Raises
        ------
        ProviderAway
            The provider does not answer, or refuses.
        """


@dataclass(frozen=True, slots=True)
class Lasting:
    """Credentials that were written down: in a variable or a file."""

    name: str
    credential: Credential
    is_lasting: bool = True

    def current(self) -> Credential:
        """Return them."""
        return self.credential


class ChainSource:
    """Credentials that a provider's library finds and renews.  Any thread may ask.

    Parameters
    ----------
    name
        As of `CredentialSource`; asked for when something was given.
    ask
        Asks the library; raises its errors.
    """

    is_lasting = False

    def __init__(self, name: Callable[[], str], ask: Callable[[], Credential]) -> None:
        self._name, self._ask = name, ask
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """As of `CredentialSource`."""
        return self._name()

    def current(self) -> Credential:
        """As of `CredentialSource`."""
        try:
            # One renewal for all stores of the process.
            with self._lock:
                return self._ask()
        except Exception as error:  # noqa: BLE001 - three libraries, each with errors of its own and of those that it uses
            # Without its text and without the cause: the output of a credential process, or an answer, may be in it.
            raise ProviderAway(f"{self.name} gives no credentials now: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """Return what may be shown of a library's error: its kind, and the provider's code."""
    answer = getattr(error, "response", None)
    code = answer.get("Error", {}).get("Code", "") if isinstance(answer, Mapping) else ""
    return f"{type(error).__name__} {code}".strip()


class StoreIdentity:
    """What a store's clients sign with; obstore calls it.

    Parameters
    ----------
    source
        What was found.
    find
        Looks once more, past what the process remembers.
    renewed_at
        When a store last refused what was found, by `time.monotonic`.
    """

    refresh_threshold = timedelta(0)
    """How long before its end obstore asks for the next credential: the end that we tell it is only when it asks again."""

    def __init__(
        self, source: CredentialSource, find: Callable[[], CredentialSource], renewed_at: float = float("-inf")
    ) -> None:
        self._source, self._find, self._renewed_at = source, find, renewed_at
        self._given: Credential | None = None
        self._is_away = False

    @property
    def name(self) -> str:
        """Which identity it is, for people; without a secret."""
        return self._source.name

    def current(self) -> Credential:
        """Return what is valid now; raises as `CredentialSource.current`."""
        self._is_away = True
        self._given = self._source.current()
        self._is_away = False
        return self._given

    def __call__(self) -> dict[str, Any]:
        """Return what is valid now, as obstore takes it."""
        given = self.current().for_client()
        ends = None if self._source.is_lasting else datetime.now(UTC) + timedelta(seconds=ASK_AGAIN_S)
        return given | {"expires_at": ends}

    def renewed(self) -> StoreIdentity | None:
        """Return an identity with other credentials when the store refused these; None when there are no others.

        Raises
        ------
        ProviderAway
            The provider does not answer: whether there are others is not known.
        NotAuthorized
            There are none any more.
        """
        was_away, now = self._is_away, time.monotonic()
        if not was_away and not self._source.is_lasting and now - self._renewed_at < RENEW_S:
            return None
        source = self._find()
        if source.current() == self._given and not was_away:
            return None
        return StoreIdentity(source, self._find, self._renewed_at if was_away else now)


class FoundChains:
    """The chains that this process has gone through: each takes requests to the network, and stores are opened often."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], CredentialSource] = {}
        self._lock = threading.Lock()

    def get(self, key: tuple[object, ...], find: Callable[[], CredentialSource], *, is_fresh: bool) -> CredentialSource:
        """Return what was found for a key; or go through the chain: for the first time, or because it shall be fresh.

        Parameters
        ----------
        key
            Everything that decides what is found.
        find
            Goes through the chain.
        is_fresh
            Whether what was found before does not count.
        """
        # One thread at a time: those that wait for the lock take what the first one has found.
        with self._lock:
            if is_fresh or key not in self._found:
                found = find()
                # Whether it gives credentials is known only when it has: what gives none is not remembered.
                found.current()
                self._found[key] = found
            return self._found[key]


def settings_of(environment: Mapping[str, str], *prefixes: str) -> tuple[tuple[str, str], ...]:
    """Return the variables that a chain looks at: when they change, another identity may be found."""
    return tuple(sorted((name, value) for name, value in environment.items() if name.startswith(prefixes)))


def silence(*names: str) -> None:
    """Keep loggers of a provider's library quiet, unless the application gave them a level: their warnings quote answers."""
    for name in names:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL + 1)


def missing(extra: str, what: str) -> NotAuthorized:
    """Return the error of a store whose library is not installed."""
    return NotAuthorized(f"{what}: pip install 'replitree[{extra}]' (docs/cloud-identity.md)")


def headers_of(credential: Credential, host: str, method: str, path: str, query: str, region: str) -> dict[str, str]:
    """Return the headers that prove who asks, for a request of ours without a body, to S3 or Google.

    Parameters
    ----------
    credential
        Keys, or a token.
    host, method, path, query
        As they are sent; the query in the order of its names.
    region
        That keys sign for.
    """
    if isinstance(credential, BearerToken):
        return {"host": host, "authorization": f"Bearer {credential.token}"}
    if not isinstance(credential, Keys):
        raise NotAuthorized("these credentials sign no requests to S3 or Google")
    # The server refuses a signature that is more than 15 minutes old: each try is signed anew.
    now = datetime.now(UTC)
    moment, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {"host": host, "x-amz-content-sha256": _EMPTY, "x-amz-date": moment}
    if credential.session:
        headers["x-amz-security-token"] = credential.session
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{_EMPTY}"
    scope = f"{day}/{region}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{credential.secret}".encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.new(key, f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}".encode(), "sha256").hexdigest()
    proof = f"AWS4-HMAC-SHA256 Credential={credential.access}/{scope}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": proof}
