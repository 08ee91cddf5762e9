"""The identity of a process at Google Cloud Storage: Application Default Credentials (extra ``gcs``: google-auth).

Google's own order: the file that ``GOOGLE_APPLICATION_CREDENTIALS`` names (a service account, a workload identity federation),
what ``gcloud auth application-default login`` has left, the metadata server of an instance, a container or a pod.

Source: Google Cloud, "How Application Default Credentials works".
"""

from __future__ import annotations

import os
import warnings
from typing import Any

from replitree.errors import NotAuthorized
from replitree.storage.objects.identity import (
    BearerToken,
    ChainSource,
    Credential,
    CredentialSource,
    FoundChains,
    missing,
    settings_of,
    silence,
)

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
"""Objects can be read, listed, written and deleted; buckets and permissions can't be changed."""

_chains = FoundChains()


def google_source(*, is_fresh: bool = False) -> CredentialSource:
    """Find the identity of this process at Google Cloud Storage.

    Parameters
    ----------
    is_fresh
        Whether the chain is gone through once more.

    Raises
    ------
    NotAuthorized
        There are no credentials, or the extra is not installed.
    ProviderAway
        An identity was found, and its provider gives no token now.
    """
    # Among them HOME and CLOUDSDK_CONFIG: gcloud's file lies there.
    return _chains.get(settings_of(os.environ, "GOOGLE_", "GCE_", "CLOUDSDK_", "HOME"), _go_through, is_fresh=is_fresh)


def _go_through() -> CredentialSource:
    try:
        import google.auth
        from google.auth.credentials import TokenState
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request
    except ModuleNotFoundError:
        raise missing("gcs", "a store at gs:// needs Google's library") from None
    silence("google.auth")
    try:
        with warnings.catch_warnings():
            # About quota projects of users' credentials, which storage does not need.
            warnings.simplefilter("ignore")
            # Its methods have no types.
            found: Any = google.auth.default(scopes=[SCOPE])[0]
    # A file that is none of Google's kinds is a ValueError.
    except (GoogleAuthError, ValueError, OSError):
        raise NotAuthorized(
            "no credentials for Google Cloud Storage: let GOOGLE_APPLICATION_CREDENTIALS name the file of a service account,"
            " run `gcloud auth application-default login`, or give this machine a service account"
        ) from None
    request = Request()

    def ask() -> Credential:
        # Stale is a token with less than four minutes left.
        if found.token_state is not TokenState.FRESH:
            try:
                found.refresh(request)
            except GoogleAuthError:
                if found.token_state is TokenState.INVALID:
                    raise
        return BearerToken(str(found.token))

    def name() -> str:
        info = found.get_cred_info() or {}
        kind = info.get("credential_type") or type(found).__module__.rpartition(".")[2].replace("_", " ")
        who = info.get("principal") or getattr(found, "service_account_email", "")
        return f"Google's default credentials: {kind}{f' {who}' if who else ''}"

    return ChainSource(name, ask)


__all__ = ["google_source"]
