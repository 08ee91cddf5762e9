"""The configuration of a server: a TOML file and variables of the environment, checked as a whole, one message per mistake.

A variable ``REPLITREE_SET_KEY`` gives a setting its value, before the file: ``REPLITREE_SET_LISTEN=0.0.0.0:9000``.  Container
systems derive variables from names of services, and none with this prefix: an unknown one is a
mistake, and refused.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from typing_extensions import override

from replitree.decoding import converted
from replitree.errors import BadInput
from replitree.protocol.core.layout import check_replica_name
from replitree.replica.kit.named_stores import check_stores
from replitree.storage.files.limits import MERGE_MEMORY_BYTES
from replitree.tls import NO_FILES, SECURE, Contexts, TlsFiles

TOKEN_LENGTH_MIN = 16
BODY_BYTES_MAX = 32 << 20
"""Bytes of a request's body; larger inserts are uploaded as files."""

IDLE_S_MAX = 75.0
"""Seconds between two requests of a connection."""

ENVIRONMENT = "REPLITREE_SET_"
"""Prefix of the variables that give settings; the setting's name follows in capital letters."""

NO_FILE = Path(os.devnull)
"""The configuration file of a server that has none: an empty one, which other processes of that server can read, too."""

_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]
_PositiveSeconds = Annotated[float, msgspec.Meta(gt=0)]


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server needs to know.

    Attributes
    ----------
    name
        The replica's name, the same for every table it hosts.
    zookeeper
        ``zk://host:port[,…]/path``.
    data
        Folder for the parts.
    token_file
        File with the shared secret of the cluster, readable by its owner only.
    tokens_file
        File of the named tokens, which the command `token create` writes; a missing file has none.  "": there are none.
    listen
        ``host:port``; port 0 takes a free one.
    advertise
        ``host:port`` under which the others reach this server; by default what it listens on.
    tables
        Names of the tables to host; ``*`` hosts all.
    session_timeout_s
        Coordination session timeout in seconds.
    insert_timeout_s
        Seconds after which a client hears "outcome unknown".
    fetch_threads
        Parts or ranges fetched at once.
    group_rows_max, group_bytes_max
        Limits of one group commit: rows, bytes of Arrow data.
    insert_rows_max, insert_decoded_bytes_max
        Limits of the rows in the body of one insert: rows, bytes once they are decoded.  Uploads have neither.
    decode_threads
        Bodies decoded at once; each takes up to three times `insert_decoded_bytes_max`.
    bodies_bytes_max
        Bytes of request bodies in memory at once, of all connections; a request beyond that is answered with 503.
    connections_max
        Connections at once, at most half of the files that the process may open; one beyond that is answered with 503.
    connections_without_token_max
        Connections that have not sent the token yet; for a new one the oldest of them is closed.
    disk_reserve_bytes
        Free space below which the replica is read-only.
    merge
        ``self``: this replica merges and mutates by itself; ``fetch``: it waits for the results of others, and never leads.
    merge_threads, merge_memory_bytes
        Parts made at once, and the memory that each may take.
    merges_max
        Merges that this replica, when it leads, has under way at once.
    part_bytes_max
        Largest result that it chooses by itself, in bytes.
    fetch_above_bytes, fetch_wait_s
        Results of sources with more bytes than this are made by the replica that proposed them and fetched by the others,
        which make them themselves when no replica has sent them for so many seconds.  What goes into an object store is made
        by one replica, however small (`replitree.protocol.execute.make_once`).
    old_parts_lifetime_s
        Seconds for which the files of parts stay that the table has no more.
    pack_old_parts_after_s
        Seconds for which a part has to be old before it is packed with others: small ones that the change feed, a consumer or
        a tag keeps.
    min_replicated_logs_to_keep
        Newest log entries that always stay.
    max_replicated_logs_to_keep
        Entries by which an inactive replica may be behind; one that is further behind is given up: it is marked lost, and
        takes over the state of another one when it comes back.
    clean_log_delay_s, clean_log_delay_random_s
        Seconds from one cleaning of the log to the next: the former, and up to the latter more.
    deduplication_window, deduplication_window_s
        Block ids that stay, and the seconds for which they do: a repeated insert is recognised within both.
    stream_retention_s
        Seconds for which a stream stays after its last batch, by the clock of coordination.
    check_interval_s
        Seconds from one part to the next when all parts are verified in the background; 0: none is.
    lost_part_after_s
        Seconds for which a part that no replica could send is tried, before it is asked whether any replica can have it.
    zero_copy
        Whether parts of tables on an object store are taken over by their metadata, where the store is the same, and put there
        when this replica writes them; if not this replica has them on its disk, and makes results for itself.
    move_threads
        Parts that are moved at once between the disk and an object store.
    carry_moves_after_s
        Seconds without progress after which this server carries the moves of buckets of a sharded table on by itself
        (`replitree.replica.shard_moves`); 0: it never does.
    ttl_interval_s
        Seconds, whole ones, from one removal of rows past a table's `ttl` to the next (`replitree.replica.parts.expiry`); 0:
        this server removes none.
    shared_cache_bytes
        How many bytes of copies of such a table's objects stay on the disk for readers, for each table.
    stores
        Object stores by name: ``[stores]``, each line a name and a URL.  The user who creates a table may give the name.
    files_group_readable
        Whether the users of the data folder's group may read the files below it, such as Spark's executors.  False: only the
        user of this process may.
    audit
        Whether requests that change something are recorded in ``audit.jsonl`` of the data folder (`replitree.replica.audit`).
    audit_bytes_max, audit_files
        Size from which on that file is rotated, and how many are kept, with the one that is being written.
    log_level
        The least important lines that are logged: ``info``, ``warning`` or ``error``.
    log_format
        ``json``: an object for each line, for programs; ``text``: a line for people.
    log_bytes_max, log_files
        Size from which on the log file of a replica that `replitree up` starts is rotated, and how many are kept, with the one
        that is being written.  A server that is started otherwise logs to standard error, and rotates nothing.
    test_cluster
        Whether this cluster is one for tests, at which `replitree verify nemesis` may be aimed: its data does not count.
    tls_certificate, tls_key
        PEM files with this server's certificate, with those between it and its authority, and its private key, readable by its
        owner only.  With them the server speaks TLS and nothing else, and shows the certificate to the replicas that it asks.
    tls_ca
        PEM file with the authorities that have issued the certificates of replicas and clients, and of ZooKeeper.
    tls_clients
        ``any``: clients need no certificate.  ``with_certificate``: they need one that an authority in `tls_ca` has issued.
    tls_plain_replicas
        Whether this server, when it has one of the files above, also asks replicas that speak clear text: only while a cluster
        is changed over to TLS, one server after the other.
    otel
        Whether this process records spans of OpenTelemetry and exports them (`replitree.wire.tracing`).
    trace
        Folder for a trace of all commits of this process (`replitree.coordination.trace`); "" writes none.
    """

    name: str
    zookeeper: str
    data: str
    token_file: str
    tokens_file: str = ""
    listen: str = "127.0.0.1:0"
    advertise: str = ""
    tables: tuple[str, ...] = ("*",)
    session_timeout_s: float = 10.0
    insert_timeout_s: float = 60.0
    fetch_threads: int = 4
    group_rows_max: int = 1_000_000
    group_bytes_max: int = 64 << 20
    insert_rows_max: _Positive = 5_000_000
    insert_decoded_bytes_max: _Positive = 128 << 20
    decode_threads: _Positive = 2
    bodies_bytes_max: Annotated[int, msgspec.Meta(ge=2 * BODY_BYTES_MAX)] = 256 << 20
    connections_max: _Positive = 4096
    connections_without_token_max: _Positive = 256
    disk_reserve_bytes: int = 64 << 20
    merge: Literal["self", "fetch"] = "self"
    merge_threads: _Positive = 1
    merge_memory_bytes: _Positive = MERGE_MEMORY_BYTES
    merges_max: _Positive = 8
    part_bytes_max: _Positive = 150 << 30
    fetch_above_bytes: int = 10 << 30
    fetch_wait_s: float = 300.0
    old_parts_lifetime_s: float = 480.0
    pack_old_parts_after_s: _Seconds = 3_600.0
    min_replicated_logs_to_keep: Annotated[int, msgspec.Meta(ge=0)] = 100
    max_replicated_logs_to_keep: _Positive = 1000
    clean_log_delay_s: _PositiveSeconds = 30.0
    clean_log_delay_random_s: _Seconds = 10.0
    deduplication_window: _Positive = 10_000
    deduplication_window_s: _PositiveSeconds = 7 * 24 * 3600.0
    stream_retention_s: _PositiveSeconds = 30 * 24 * 3600.0
    check_interval_s: _Seconds = 60.0
    lost_part_after_s: float = 300.0
    zero_copy: bool = True
    move_threads: _Positive = 2
    carry_moves_after_s: _Seconds = 60.0
    ttl_interval_s: Annotated[int, msgspec.Meta(ge=0)] = 3600
    shared_cache_bytes: Annotated[int, msgspec.Meta(ge=0)] = 4 << 30
    test_cluster: bool = False
    tls_certificate: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    tls_clients: Literal["any", "with_certificate"] = "any"
    tls_plain_replicas: bool = False
    otel: bool = False
    trace: str = ""
    files_group_readable: bool = False
    audit: bool = True
    audit_bytes_max: _Positive = 64 << 20
    audit_files: _Positive = 5
    log_level: Literal["info", "warning", "error"] = "info"
    log_format: Literal["json", "text"] = "json"
    log_bytes_max: _Positive = 64 << 20
    log_files: _Positive = 5
    stores: dict[str, str] = {}

    def hosts(self, table: str) -> bool:
        """Whether this server hosts the table."""
        return "*" in self.tables or table in self.tables

    @property
    def tls_files(self) -> TlsFiles:
        """The files of TLS."""
        return TlsFiles(self.tls_ca, self.tls_certificate, self.tls_key)


@dataclass(frozen=True, slots=True)
class Address:
    """A host, a port, and whether TLS is spoken there."""

    host: str
    port: int
    is_secure: bool = False

    @override
    def __str__(self) -> str:
        return f"{SECURE if self.is_secure else ''}{self.host}:{self.port}"


def parse_address(text: str, field: str) -> Address:
    """Take ``host:port`` apart.

    Raises
    ------
    BadInput
        It is not of that form.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise BadInput(f"{field} = {text!r}: expected host:port, for example 127.0.0.1:9000")
    return Address(host, int(port))


def load_config(path: Path, environment: Mapping[str, str] | None = None) -> ServerConfig:
    """Read and check a server's configuration.

    Parameters
    ----------
    path
        The TOML file; `NO_FILE`: everything is in the environment.
    environment
        Variables by name, of which those with the prefix `ENVIRONMENT` come before the file; by default those of this process.

    Raises
    ------
    BadInput
        The file can't be read, is not TOML, or has a wrong field; or a variable is wrong.  The message names it.
    """
    where = "the environment" if path == NO_FILE else str(path)
    try:
        given = tomllib.loads(path.read_text())
        for key, value in given.items():
            _check_setting(key, value, f"{where}: {key}")
        given |= environment_settings(os.environ if environment is None else environment)
        for option in msgspec.structs.fields(ServerConfig):
            if option.required and option.name not in given:
                variable = f"{ENVIRONMENT}{option.name.upper()}"
                raise BadInput(f"{where}: {option.name} is missing; write it into the file, or set {variable}")
        config = converted(given, ServerConfig)
    except OSError as error:
        raise BadInput(f"can't read the configuration {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise BadInput(f"{where}: {error}") from error
    check_replica_name(config.name)
    parse_address(config.listen, "listen")
    if config.advertise:
        parse_address(config.advertise, "advertise")
    if config.stores:
        check_stores(config.stores, where)
    if config.max_replicated_logs_to_keep < config.min_replicated_logs_to_keep:
        raise BadInput(f"{where}: max_replicated_logs_to_keep is less than min_replicated_logs_to_keep")
    config.tls_files.check(("tls_ca", "tls_certificate", "tls_key"))
    if config.tls_clients == "with_certificate" and not (config.tls_ca and config.tls_certificate):
        raise BadInput(
            f'{where}: tls_clients = "with_certificate" needs tls_ca, whose authorities issue the certificates of clients, and'
            " tls_certificate"
        )
    return config


def server_contexts(files: TlsFiles, *, wants_certificates: bool, takes_clear_text: bool = False) -> Contexts:
    """Return the SSL contexts of a server, which can be used.

    Parameters
    ----------
    files
        The server's.
    wants_certificates, takes_clear_text
        As of `Contexts`.

    Raises
    ------
    BadInput
        A file can't be read, or is not what it should be, or others can read the key.
    """
    if files.key:
        check_private(Path(files.key), "the private key")
    contexts = Contexts(files, wants_certificates=wants_certificates, takes_clear_text=takes_clear_text)
    # Now, so that a file that can't be used is an error of the start.
    if files.certificate:
        contexts.server()
    if files != NO_FILES:
        contexts.client()
    return contexts


def check_private(path: Path, what: str) -> None:
    """Do nothing when only its owner can read a file with a secret.

    Raises
    ------
    BadInput
        Others can, or it can't be read; the message has the command that mends it.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise BadInput(f"can't read {what} {path}: {error.strerror}") from error
    if mode & 0o077:
        raise BadInput(f"{what} {path} can be read by others: chmod 600 {path}")


def environment_settings(environment: Mapping[str, str]) -> dict[str, object]:
    """Return the settings that variables of the environment give, by name.

    A text stands as it is; ``tables`` is a list with commas; every other value is TOML.

    Raises
    ------
    BadInput
        A variable names no setting, or its value is not one of that setting.

    >>> environment_settings({"REPLITREE_SET_NAME": "r1", "REPLITREE_SET_MERGES_MAX": "4", "HOME": "/"})
    {'merges_max': 4, 'name': 'r1'}
    """
    kinds = _kinds()
    found: dict[str, object] = {}
    for variable in sorted(each for each in environment if each.startswith(ENVIRONMENT)):
        key, text = variable.removeprefix(ENVIRONMENT).lower(), environment[variable]
        if variable != ENVIRONMENT + key.upper():
            key = variable
        is_text = key not in kinds or kinds[key] is str or get_origin(kinds[key]) is Literal
        try:
            value = text.split(",") if key == "tables" else text if is_text else tomllib.loads(f"v = {text}")["v"]
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"the variable {variable} has no value of {key}: {error}") from error
        found[key] = _check_setting(key, value, f"the variable {variable}", ENVIRONMENT)
    return found


def _kinds() -> dict[str, Any]:
    """Return the type of each setting by its name."""
    return {option.name: option.type for option in msgspec.structs.fields(ServerConfig)}


def _check_setting(key: str, value: object, said: str, prefix: str = "") -> object:
    """Return the value of a setting; ``BadInput`` begins with what is ``said``, and proposes names with the ``prefix``."""
    kinds = _kinds()
    if key not in kinds:
        near = get_close_matches(key.removeprefix(prefix).lower(), kinds, n=1)
        hint = f"; did you mean {prefix + near[0].upper() if prefix else near[0]}?" if near else ""
        raise BadInput(f"{said} names no setting of a server{hint}")
    try:
        return converted(value, kinds[key])
    except msgspec.ValidationError as error:
        choice = get_args(kinds[key]) if get_origin(kinds[key]) is Literal else ()
        wanted = f"use {' or '.join(choice)}" if choice else str(error)
        raise BadInput(f"{said} has no value of {key}: {wanted}" if prefix else f"{said}: {wanted}") from error


def read_token(path: Path) -> str:
    """Read the cluster's shared secret.

    Raises
    ------
    BadInput
        The file can't be read, holds too little, or is open to others.
    """
    check_private(path, "the token file")
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise BadInput(f"can't read the token file {path}: {error.strerror}") from error
    if len(token) < TOKEN_LENGTH_MIN:
        raise BadInput(f"the token in {path} has {len(token)} characters: use at least {TOKEN_LENGTH_MIN}")
    if token.startswith("named."):
        raise BadInput(
            f"{path} holds a named token: the cluster's own token has no name, and named ones lie in tokens_file"
        )
    return token
