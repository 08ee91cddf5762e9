"""Block ids: under which name an insert is remembered, so that the same again is a duplicate.

The id is of the client's token when there is one, else of the content: the same rows sent twice are inserted once, unless each
time has a token of its own.  An insert that overwrites and has no token is never a duplicate: to write the same again over
something else is meant.

The log keeps nothing of a token but its block id.  So the token of a restore has a form of its own (`restore_token`), and its
block id says which version was restored.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence

import xxhash

from replitree.errors import BadInput
from replitree.protocol.core.effects import BlockId

TOKEN_LENGTH_MAX = 1024

_RESTORE_TOKEN = re.compile(r"restore_to:([0-9]{1,30}):.+", re.DOTALL)
_RESTORE_BLOCK = re.compile(r"t-[0-9a-f]{32}-restore_to-([0-9]{1,30})")


def block_of(token: str | None, drops: tuple[str, ...], hashes: Callable[[], Sequence[str]]) -> BlockId:
    """Return an insert's block id.

    Parameters
    ----------
    token
        The client's, if it gave one.
    drops
        The partitions that the insert overwrites.
    hashes
        The content hashes of its parts; asked for only when they are needed.

    Raises
    ------
    BadInput
        As `token_block`.
    """
    if token is not None:
        return token_block(token)
    # An overwrite is never a duplicate: to write the same again over something else is meant.
    return token_block(secrets.token_hex(16)) if drops else content_block(hashes())


def token_block(token: str) -> BlockId:
    """Return the block id of a client's token.

    Raises
    ------
    BadInput
        The token is empty or longer than `TOKEN_LENGTH_MAX` characters.
    """
    if not 1 <= len(token) <= TOKEN_LENGTH_MAX:
        raise BadInput(f"the token has {len(token)} characters: use 1 to {TOKEN_LENGTH_MAX}")
    restored = _RESTORE_TOKEN.fullmatch(token)
    version = f"-restore_to-{restored[1]}" if restored is not None else ""
    return BlockId(f"t-{xxhash.xxh3_128_hexdigest(token.encode())}{version}")


def restore_token(index: int, token: str) -> str:
    """Return the token of an insert that restores the version at an index; one that has the form already stays as it is.

    >>> restore_token(41, "nightly"), restore_token(50, "restore_to:41:nightly")
    ('restore_to:41:nightly', 'restore_to:41:nightly')
    """
    return token if _RESTORE_TOKEN.fullmatch(token) else f"restore_to:{index}:{token}"


def restored_version(blocks: Sequence[BlockId]) -> int | None:
    """Return the index of the version that an insert with these block ids has restored; None: it is no restore.

    >>> restored_version([token_block(restore_token(41, "nightly"))]), restored_version([token_block("nightly")])
    (41, None)
    """
    found = map(_RESTORE_BLOCK.fullmatch, blocks)
    return next((int(version[1]) for version in found if version is not None), None)


def is_of_token(block: BlockId) -> bool:
    """Return whether a block id is of a client's token, and not of content."""
    return block.startswith("t-")


def content_block(hashes: Sequence[str]) -> BlockId:
    """Return the block id of rows from the content hashes of their parts."""
    return BlockId(
        f"c-{hashes[0] if len(hashes) == 1 else xxhash.xxh3_128_hexdigest(','.join(sorted(hashes)).encode())}"
    )
