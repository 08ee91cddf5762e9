"""The identity of a process at Azure Blob Storage: a key, a signature, or what Azure's own chain finds (extra ``azure``).

The order:

1. ``AZURE_STORAGE_ACCOUNT_KEY``, or ``AZURE_STORAGE_KEY``, the key of the storage account
2. ``AZURE_STORAGE_SAS_TOKEN``, a shared access signature
3. Azure's chain, with the extra (azure-identity): a service principal of the environment, a workload identity, the managed
   identity of a machine, a container or a function, ``az login``

Source: Azure SDK for Python, `DefaultAzureCredential`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping

from replitree.errors import NotAuthorized
from replitree.storage.objects.identity import (
    AccountKey,
    BearerToken,
    ChainSource,
    Credential,
    CredentialSource,
    FoundChains,
    Lasting,
    SharedAccess,
    missing,
    settings_of,
    silence,
)

SCOPE = "https://storage.azure.com/.default"
KEY_VARIABLES = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY")
SIGNATURE_VARIABLE = "AZURE_STORAGE_SAS_TOKEN"

_NONE = f"no credentials for Azure Blob Storage: set {KEY_VARIABLES[0]} or {SIGNATURE_VARIABLE}"

_chains = FoundChains()


def azure_source(environment: Mapping[str, str] | None, *, is_fresh: bool = False) -> CredentialSource:
    """Find the identity of this process at Azure Blob Storage.

    Parameters
    ----------
    environment
        Where keys and signatures are looked for; None: in the process's own, and then by Azure's chain.
    is_fresh
        Whether the chain is gone through once more.

    Raises
    ------
    NotAuthorized
        There are none, the key is none, or the extra is not installed.
    ProviderAway
        An identity was found, and its provider gives no token now.
    """
    looked_at = os.environ if environment is None else environment
    for name in KEY_VARIABLES:
        if key := looked_at.get(name):
            try:
                base64.b64decode(key, validate=True)
            except binascii.Error:
                raise NotAuthorized(f"{name} is no key of a storage account: it must be Base64") from None
            return Lasting(f"the account's key of {name}", AccountKey(key))
    if signature := looked_at.get(SIGNATURE_VARIABLE):
        if "=" not in signature:
            raise NotAuthorized(f"{SIGNATURE_VARIABLE} is no shared access signature: it looks like sv=…&sig=…")
        return Lasting(f"the shared access signature of {SIGNATURE_VARIABLE}", SharedAccess(signature))
    if environment is not None:
        raise NotAuthorized(_NONE)
    settings = settings_of(looked_at, "AZURE_", "IDENTITY_", "IMDS_", "MSI_", "HOME")
    return _chains.get(settings, _go_through, is_fresh=is_fresh)


def _go_through() -> CredentialSource:
    try:
        from azure.core.exceptions import ClientAuthenticationError
        from azure.identity import DefaultAzureCredential
    except ModuleNotFoundError:
        raise missing("azure", f"{_NONE}; other identities need Azure's library") from None
    silence("azure.core", "azure.identity", "msal")
    try:
        chain = DefaultAzureCredential()
        chain.get_token(SCOPE)
    # `from None`: the chain lists what each of its members said.
    except ClientAuthenticationError as error:
        raise NotAuthorized(
            f"{_NONE}, or give this machine a managed identity; Azure's chain has found no other ({type(error).__name__})"
        ) from None

    def ask() -> Credential:
        # From memory, until minutes before its end.
        return BearerToken(chain.get_token(SCOPE).token)

    def name() -> str:
        # There is no public way to learn it; without it the name says less.
        member = type(getattr(chain, "_successful_credential", None)).__name__
        return f"Azure's chain: {member.removesuffix('Credential') if member.endswith('Credential') else 'an identity'}"

    return ChainSource(name, ask)


__all__ = ["azure_source"]
