"""Access: from what a user names to an url and a token.

A cluster is named by its coordination url (``zk://host:port,…/path``), or by the folder that `replitree up` made, which
knows the url.

The token, in this order: the argument; ``REPLITREE_TOKEN``; the file in ``REPLITREE_TOKEN_FILE``; the token file of the
folder.  It is in no `repr` and no message.

The files of TLS, in this order: the arguments; ``REPLITREE_TLS_CA``, ``REPLITREE_TLS_CERTIFICATE``, ``REPLITREE_TLS_KEY``;
those that the folder's cluster was started with.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from replitree.coordination.url import SCHEME, parse_url
from replitree.decoding import json_decoder
from replitree.errors import BadInput, NotAuthorized
from replitree.tls import NO_FILES, TlsFiles

CLUSTER_FILE = "cluster.json"
TOKEN_VARIABLE = "REPLITREE_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE_VARIABLE = "REPLITREE_TOKEN_FILE"  # noqa: S105 - the name of a variable
URL_VARIABLE = "REPLITREE_URL"
TLS_VARIABLES = ("REPLITREE_TLS_CA", "REPLITREE_TLS_CERTIFICATE", "REPLITREE_TLS_KEY")


class ReplicaEntry(msgspec.Struct, frozen=True):
    """A replica of a local cluster: its process when the file was written, its data folder, its configuration file."""

    name: str
    pid: int
    data: str
    config: str


class ClusterFile(msgspec.Struct, frozen=True):
    """What ``cluster.json`` in a folder made by `up` says."""

    url: str
    token_file: str
    replicas: tuple[ReplicaEntry, ...] = ()
    tls: TlsFiles = NO_FILES


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a cluster.

    Attributes
    ----------
    url
        Coordination url.
    token
        The shared secret; empty when none was found: then only coordination can be asked.
    replicas
        Names of the replicas that a local cluster has; empty when they are not known beforehand.
    tls
        What TLS is made with.
    """

    url: str
    token: str = field(repr=False)
    replicas: tuple[str, ...] = ()
    tls: TlsFiles = NO_FILES


def find_access(
    url: str | os.PathLike[str],
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    tls: TlsFiles | None = None,
) -> Access:
    """Find out how to reach a cluster.

    Parameters
    ----------
    url
        ``zk://…``, or a folder made by `replitree up`.
    token, token_file
        The shared secret, or a file that holds it; by default found as the module says.
    tls
        What TLS is made with; what it leaves out is found as the module says.

    Raises
    ------
    BadInput
        The url is wrong, or a certificate has no key, or the folder has no cluster.
    """
    text = os.fspath(url)
    if not text:
        raise BadInput(f"the cluster's name is empty: say {SCHEME}host:port/path, or a folder made by `replitree up`")
    if token is None and token_file is not None:
        token = read_secret(Path(token_file))
    if text.startswith(SCHEME):
        parse_url(text)
        return Access(text, _found_token(token), tls=_found_tls(tls, NO_FILES))
    if "://" in text:
        raise BadInput(
            f"a cluster is named by {SCHEME}host:port/path or by a folder made by `replitree up`, not by {text!r}"
        )
    folder = Path(text)
    cluster = read_cluster_file(folder)
    found = _found_token(token) or read_secret(folder / cluster.token_file)
    names = tuple(replica.name for replica in cluster.replicas)
    return Access(cluster.url, found, names, _found_tls(tls, cluster.tls))


def public_url(url: str) -> str:
    """Return a coordination url without its credentials, for files that others may read.

    Examples
    --------
    >>> public_url("zk://me:secret@h:1/lake")
    'zk://h:1/lake'
    """
    parsed = parse_url(url)
    return str(replace(parsed, credentials=None))


def read_cluster_file(folder: Path) -> ClusterFile:
    """Read ``cluster.json`` of a folder.

    Raises
    ------
    BadInput
        There is none, or it can't be read.
    """
    path = folder / CLUSTER_FILE
    try:
        return json_decoder(ClusterFile).decode(path.read_bytes())
    except FileNotFoundError as error:
        raise BadInput(f"there is no cluster in {folder}: start one with `replitree up --dir {folder}`") from error
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(f"can't read {path}: {_reason(error)}; `replitree up --dir {folder}` writes it anew") from error


def read_secret(path: Path, otherwise: str = f"set {TOKEN_VARIABLE} instead") -> str:
    """Read a token file.

    Parameters
    ----------
    path
        The file.
    otherwise
        What to do when it is not there.

    Raises
    ------
    NotAuthorized
        It can't be read, or is empty.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotAuthorized(f"can't read the token file {path}: {_reason(error)}; {otherwise}") from error
    if not token:
        raise NotAuthorized(f"the token file {path} is empty; write the shared token into it")
    return token


def _reason(error: Exception) -> str:
    """Say what is wrong with a file, without its name."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _found_token(token: str | None) -> str:
    if token is not None:
        return token
    environment = os.environ.get(TOKEN_VARIABLE)
    if environment:
        return environment
    path = os.environ.get(TOKEN_FILE_VARIABLE)
    return read_secret(Path(path)) if path else ""


def _found_tls(given: TlsFiles | None, of_folder: TlsFiles) -> TlsFiles:
    """Return the files that an argument, the environment or the folder names; a certificate and its key from one place."""
    places = [given or NO_FILES, TlsFiles(*(os.environ.get(name, "") for name in TLS_VARIABLES)), of_folder]
    for place in places:
        place.check(TLS_VARIABLES)
    own = next((place for place in places if place.certificate), NO_FILES)
    named = (next((place.ca for place in places if place.ca), ""), own.certificate, own.key)
    # Spark's processes read them, too, and may run in other folders.
    return TlsFiles(*(file and str(Path(file).absolute()) for file in named))
