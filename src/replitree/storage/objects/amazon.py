"""The identity of a process at S3: keys that were written down, or what Amazon's own chain finds (extra ``aws``: botocore).

The order:

1. ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, with ``AWS_SESSION_TOKEN``
2. the file that ``REPLITREE_STORE_CREDENTIALS`` names, in the form that Amazon's tools use; its section ``[default]``
3. Amazon's chain, with the extra: profiles (``AWS_PROFILE``; roles, single sign-on, credential processes), web identities
   (``AWS_WEB_IDENTITY_TOKEN_FILE``), containers, the instance
4. without the extra the file that ``AWS_SHARED_CREDENTIALS_FILE`` names, as in 2

Source: botocore, "Credentials", order of its default providers.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from replitree.errors import NotAuthorized
from replitree.storage.objects.identity import (
    ChainSource,
    Credential,
    CredentialSource,
    FoundChains,
    Keys,
    Lasting,
    ProviderAway,
    missing,
    settings_of,
    silence,
)
from replitree.storage.objects.location import CREDENTIALS_FILE_VARIABLE

PROFILE = "default"
SHARED_FILE_VARIABLE = "AWS_SHARED_CREDENTIALS_FILE"

_NONE = (
    "no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or let"
    f" {CREDENTIALS_FILE_VARIABLE} name a file with them"
)
_METHODS = {
    "env": "the environment",
    "assume-role": "a role of a profile",
    "assume-role-with-web-identity": "a web identity",
    "sso": "single sign-on",
    "shared-credentials-file": "a profile of the credentials file",
    "config-file": "a profile of the configuration file",
    "custom-process": "a credential process",
    "container-role": "the container's role",
    "iam-role": "the instance's role",
}

_chains = FoundChains()


def amazon_source(environment: Mapping[str, str] | None, region: str, *, is_fresh: bool = False) -> CredentialSource:
    """Find the identity of this process at S3.

    Parameters
    ----------
    environment
        Where keys are looked for; None: in the process's own, and then by Amazon's chain.
    region
        Of the bucket; the chain asks the token service there, unless the configuration names another region.
    is_fresh
        Whether a chain is gone through once more.

    Raises
    ------
    NotAuthorized
        There are none, or the extra is not installed.
    ProviderAway
        An identity was found, and its provider gives no credentials now.
    """
    looked_at = os.environ if environment is None else environment
    # Empty is unset: executors of Spark can take a variable over from their driver's Java only by making it empty.
    key, secret = (looked_at.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
    if key and secret:
        keys = Keys(key, secret, looked_at.get("AWS_SESSION_TOKEN", ""))
        return Lasting(f"keys of the environment ({shown(key)})", keys)
    if path := looked_at.get(CREDENTIALS_FILE_VARIABLE):
        return _of_file(path)
    if environment is not None:
        if path := looked_at.get(SHARED_FILE_VARIABLE):
            return _of_file(path)
        raise NotAuthorized(_NONE)
    settings = (*settings_of(looked_at, "AWS_", "HOME"), region)
    return _chains.get(settings, partial(_go_through, region), is_fresh=is_fresh)


def shown(key: str) -> str:
    """Return what is shown of the id of a key.

    >>> shown("AKIAIOSFODNN7EXAMPLE")
    'AKIA…MPLE'
    """
    return f"{key[:4]}…{key[-4:]}"


def _of_file(path: str) -> CredentialSource:
    # Secrets may have percent signs, which the default would take for references.
    file = configparser.ConfigParser(interpolation=None)
    try:
        file.read_string(Path(path).read_text())
        section = file[PROFILE]
        keys = Keys(
            section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token", "")
        )
    # `from None`: a parser's error quotes the line that it can't read, which may be a secret.
    except (OSError, UnicodeDecodeError, configparser.Error, KeyError):
        raise NotAuthorized(
            f"{path} can't be read as credentials: it needs a section [{PROFILE}] with aws_access_key_id and"
            " aws_secret_access_key"
        ) from None
    return Lasting(f"keys of {path} ({shown(keys.access)})", keys)


def _go_through(region: str) -> CredentialSource:
    try:
        import botocore.session
        from botocore.exceptions import BotoCoreError, CredentialRetrievalError
    except ModuleNotFoundError:
        if path := os.environ.get(SHARED_FILE_VARIABLE):
            return _of_file(path)
        raise missing(
            "aws", f"{_NONE}; profiles, web identities, containers and instances need Amazon's library"
        ) from None
    silence("botocore.credentials", "botocore.tokens", "botocore.utils")
    session = botocore.session.get_session()
    if not session.get_config_variable("region"):
        session.set_config_variable("region", region)
    try:
        found = session.get_credentials()
    # Without the cause, here and below: it may quote a file, or what a process has printed.
    except CredentialRetrievalError:
        raise ProviderAway("Amazon's chain has found an identity, which gives no credentials now") from None
    except BotoCoreError as error:
        raise NotAuthorized(f"{_NONE}; Amazon's own chain ends with {type(error).__name__}") from None
    if found is None:
        raise NotAuthorized(f"{_NONE}, or give this machine a role; Amazon's chain has found no other identity")

    def ask() -> Credential:
        given = found.get_frozen_credentials()
        return Keys(given.access_key, given.secret_key, given.token or "")

    return ChainSource(lambda: f"Amazon's chain: {_METHODS.get(found.method, found.method)}", ask)


__all__ = ["amazon_source", "shown"]
