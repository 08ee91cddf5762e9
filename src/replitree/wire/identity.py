"""The identity of this process, and whether the process of another identity still runs.

The identity is the value of the nodes `host` and `is_active`.  Its incarnation is different for every process that ever
starts, so no two identities are equal.

A holder of `is_active` is *provably dead* only when it ran under the same kernel (boot id), in the same process namespace, and
its process id is gone or belongs to a process that began at another time.  Anything else is alive or unclear: then the
session's expiry decides, not we.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec

from replitree.decoding import json_decoder
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Owner

FORMAT = 1


class Identity(msgspec.Struct, frozen=True):
    """The identity that a replica's process writes.

    Attributes
    ----------
    address
        ``host:port`` of its HTTP server.
    incarnation
        32 hexadecimal digits, different for every process.
    machine
        Boot id and process namespace.
    pid, started
        Process id, and when the process began in clock ticks since the machine's start.
    """

    address: str
    incarnation: str
    machine: str
    pid: int
    started: int
    format: int = FORMAT

    def encode(self) -> bytes:
        """Return the node's value."""
        return msgspec.json.encode(self)


def decode_identity(value: bytes) -> Identity | None:
    """Return the identity in a node's value, or None when it holds none."""
    try:
        return json_decoder(Identity).decode(value)
    except msgspec.DecodeError:
        return None


def machine_id() -> str:
    """Return what tells this kernel and process namespace from every other."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/pid")
    boot_id = boot.read_text().strip() if boot.exists() else "unknown"
    return f"{boot_id}/{namespace.readlink() if namespace.is_symlink() else 'unknown'}"


def process_started(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the machine's start; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name before is in parentheses, and may have spaces and parentheses itself.
    fields = stat.rpartition(")")[2].split()
    # A zombie, or a process that is just ending, runs no code any more.
    return None if fields[0] in "ZX" else int(fields[19])


def own_identity(address: str) -> Identity:
    """Return a fresh identity of this process."""
    return Identity(address, secrets.token_hex(16), machine_id(), os.getpid(), process_started(os.getpid()) or 0)


def new_incarnation() -> str:
    """Return an incarnation for a table whose nodes are about to be made."""
    return secrets.token_hex(layout.INCARNATION_LENGTH // 2)


def probe_owner(value: bytes) -> Owner:
    """Say whether the process that wrote `value` is still there."""
    holder = decode_identity(value)
    # Only the process's own kernel and namespace can tell that it has ended.
    if holder is None or holder.machine != machine_id() or "unknown" in holder.machine:
        return Owner.UNCLEAR
    # By its start time, too: the number may belong to a later process.
    return Owner.ALIVE if process_started(holder.pid) == holder.started else Owner.DEAD
