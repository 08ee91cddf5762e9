"""A look at a server's configuration before it starts: `replitree server --check`; and its JSON schema, for editors.

What is looked at: the configuration itself, the token, the data folder, the addresses, ZooKeeper's servers, the folder of
traces; of each store in ``[stores]`` which identity this process has there, and what it can do.  Nothing is created or changed
but for trial objects in these stores, which are deleted again, and no session begins.  A ZooKeeper server or a store that does
not answer is a warning: it may come later, and a server waits for it.
"""

from __future__ import annotations

import errno
import fcntl
import inspect
import os
import re
import shutil
import socket
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from replitree.coordination.url import parse_url
from replitree.errors import ReplitreeError, StoreError
from replitree.replica.kit.config import ServerConfig, load_config, parse_address, read_token
from replitree.wire.tracing import why_not_traced

CONNECT_S_MAX = 2.0
"""How long a ZooKeeper server may take to take a connection, in seconds."""

STORE_S_MAX = 5.0
"""How long an object store may take to answer, in seconds."""

ANY_HOST = ("0.0.0.0", "::", "[::]")  # noqa: S104 - nothing is bound here
"""Hosts to listen on that no other machine can call."""

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class CheckState(Enum):
    """What became of a check."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


class ConfigCheck(msgspec.Struct, frozen=True):
    """One thing that was looked at: the setting, how it is, and why."""

    item: str
    state: CheckState
    text: str


def check_config(path: Path) -> list[ConfigCheck]:
    """Look at a server's configuration; the first wrong thing that all others need ends the look.

    Parameters
    ----------
    path
        The file, as of `load_config`.
    """
    try:
        config = load_config(path)
    except ReplitreeError as error:
        return [ConfigCheck("configuration", CheckState.WRONG, str(error))]
    found = [ConfigCheck("configuration", CheckState.OK, f"replica {config.name}")]
    try:
        read_token(Path(config.token_file))
        found.append(ConfigCheck("token_file", CheckState.OK, config.token_file))
    except ReplitreeError as error:
        found.append(ConfigCheck("token_file", CheckState.WRONG, str(error)))
    is_running = _is_locked(Path(config.data) / "lock")
    found += _check_data(config, is_running)
    found += _check_addresses(config, is_running)
    found += _check_zookeeper(config)
    found += [_check_store(name, url) for name, url in sorted(config.stores.items())]
    if config.otel and (why := why_not_traced()):
        found.append(ConfigCheck("otel", CheckState.WRONG, why))
    if config.trace and (why := _why_not_written(Path(config.trace))):
        found.append(ConfigCheck("trace", CheckState.WRONG, why))
    return found


# --- the disk -----------------------------------------------------------------------------------------------------------------


def _is_locked(lock: Path) -> bool:
    """Whether a process has the data folder."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _why_not_written(folder: Path) -> str:
    """Return why this process can't write into a folder, or make it; empty: it can."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return f"{place} is no folder"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"this user ({os.geteuid()}) can't write into {place}: let the user of the server own it"
    return ""


def _check_data(config: ServerConfig, is_running: bool) -> Iterator[ConfigCheck]:
    folder = Path(config.data)
    if why := _why_not_written(folder):
        yield ConfigCheck("data", CheckState.WRONG, why)
        return
    if is_running:
        yield ConfigCheck("data", CheckState.WARNING, f"a process uses {folder} now: stop it before another one starts")
    else:
        yield ConfigCheck("data", CheckState.OK, f"{folder}{'' if folder.exists() else ' will be made'}")
    place = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    free = shutil.disk_usage(place).free
    if free < config.disk_reserve_bytes:
        text = f"{free >> 20:,} MiB are free, disk_reserve_bytes are {config.disk_reserve_bytes >> 20:,}: it would be read-only"
        yield ConfigCheck("disk_reserve_bytes", CheckState.WARNING, text)


# --- addresses ----------------------------------------------------------------------------------------------------------------


def _check_addresses(config: ServerConfig, is_running: bool) -> Iterator[ConfigCheck]:
    listen = parse_address(config.listen, "listen")
    problem = _why_not_bound(listen.host.strip("[]"), listen.port)
    if problem is None:
        yield ConfigCheck("listen", CheckState.OK, str(listen))
    elif problem.errno == errno.EADDRINUSE and is_running:
        yield ConfigCheck("listen", CheckState.OK, f"{listen}, in use, as the data folder is")
    else:
        text = f"can't listen on {listen} ({problem.strerror}): name an address of this machine, and a free port"
        yield ConfigCheck("listen", CheckState.WRONG, text)
    if config.advertise:
        advertise = parse_address(config.advertise, "advertise")
        try:
            socket.getaddrinfo(advertise.host.strip("[]"), advertise.port, type=socket.SOCK_STREAM)
            yield ConfigCheck("advertise", CheckState.OK, str(advertise))
        except OSError as error:
            text = f"{advertise.host} can't be resolved here ({error.strerror}); the other servers must be able to"
            yield ConfigCheck("advertise", CheckState.WARNING, text)
    elif listen.host in ANY_HOST:
        text = f"it is missing, and no other machine can call {listen.host}: give the host:port under which they reach this one"
        yield ConfigCheck("advertise", CheckState.WRONG, text)


def _why_not_bound(host: str, port: int) -> OSError | None:
    """Return the error of listening there; None: there is none."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, number) as trial:
            # As the server does: a port whose connections are just being closed is free.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        return error
    return None


def _check_zookeeper(config: ServerConfig) -> Iterator[ConfigCheck]:
    try:
        url = parse_url(config.zookeeper)
    except ReplitreeError as error:
        yield ConfigCheck("zookeeper", CheckState.WRONG, str(error))
        return
    away: list[str] = []
    for host, port in url.hosts:
        try:
            socket.create_connection((host.strip("[]"), port), CONNECT_S_MAX).close()
        except OSError as error:
            away.append(f"{host}:{port} ({error.strerror or error})")
    if away:
        text = f"{len(away)} of {len(url.hosts)} servers take no connection: {', '.join(away)}"
        yield ConfigCheck("zookeeper", CheckState.WARNING, text)
    else:
        yield ConfigCheck("zookeeper", CheckState.OK, str(url))


def _check_store(name: str, url: str) -> ConfigCheck:
    # With obstore, and with Arrow's half of the storage layer: only for a configuration that has stores.
    from replitree.storage.objects.location import StoreLocation
    from replitree.storage.objects.opening import identity_for, open_store
    from replitree.storage.objects.probe import StoreUnusable, try_all

    item, works, who = f"stores.{name}", list[str](), "this user"
    try:
        location = StoreLocation.parse(url)
        if location.is_bucket:
            who = identity_for(location).name
        for each in try_all(open_store(location, patience_s=STORE_S_MAX)):
            works.append(each)
    except ReplitreeError as error:
        # What can't be reached may be there later; what refuses, or ignores conditions, stays so.
        is_away = isinstance(error, StoreError) and not isinstance(error, StoreUnusable)
        state = CheckState.WARNING if is_away else CheckState.WRONG
        done = f"as {who}: {', '.join(works)}; then: " if works else ""
        return ConfigCheck(item, state, f"{done}{error}")
    return ConfigCheck(item, CheckState.OK, f"{url} as {who}: {', '.join(works)}")


# --- schema -------------------------------------------------------------------------------------------------------------------


def schema_of_config() -> dict[str, Any]:
    """Return the JSON schema of the configuration file; what each setting means is in the docstring of `ServerConfig`."""
    made = msgspec.json.schema(ServerConfig)["$defs"][ServerConfig.__name__]
    _, _, attributes = inspect.cleandoc(ServerConfig.__doc__ or "").partition("Attributes\n----------\n")
    for names, text in re.findall(r"^(\S.*)\n((?:[ ]+.*\n?|\n)+)", attributes, re.MULTILINE):
        for name in names.split(", "):
            made["properties"][name]["description"] = " ".join(text.replace("`", "").split())
    return {
        "$schema": SCHEMA_DIALECT,
        **made,
        "title": "replitree server",
        "description": "A server's configuration (TOML).",
    }


__all__ = ["CheckState", "ConfigCheck", "check_config", "schema_of_config"]
