"""The shared secret that a request must have."""

from __future__ import annotations

import hmac

from replitree.errors import NotAuthorized


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
