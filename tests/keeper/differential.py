"""The differential test: random conversations, sent to the core and to a real ZooKeeper, must be answered alike.

``python -m tests.keeper.differential --examples 10000 --seed 1`` runs as many as one wants.  What is compared, and what is left
out, says `normal`.  Conversations have none of the requests of `ON_PURPOSE`, nor those that end ZooKeeper 3.9.5: `createTTL`
with other flags than those of a time to live, and statistics of a quota that are no counts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from replitree.keeper.core.wire import Op, int_bytes
from tests.keeper.conversations import CLIENTS, Drawing, Step
from tests.keeper.frames import (
    CLOSE,
    PING,
    acl_bytes,
    create_body,
    handshake,
    multi_body,
    request,
    text,
    versioned,
    watched,
)
from tests.keeper.mutants import mutant_of
from tests.keeper.normal import Namer, Plain, reply, response
from tests.keeper.peers import MemoryServer, Peer, Server, real_server

ON_PURPOSE: dict[str, tuple[int, bytes]] = {
    # ZooKeeper replies -5 and uses up a zxid; to us it is an unknown request.
    "createSession from a client": (-10, b""),
    # ZooKeeper deletes nodes that access control protects.
    "deleteContainer from a client": (Op.DELETE_CONTAINER, text("/none")),
    # ZooKeeper replies -5, an error of its own code; to us the ACL is not well formed.
    "null id of world": (Op.CREATE, create_body("/n", acl=acl_bytes((31, "world", None)))),
    "null id of digest": (Op.CREATE, create_body("/n", acl=acl_bytes((31, "digest", None)))),
    "null id of ip": (Op.CREATE, create_body("/n", acl=acl_bytes((31, "ip", None)))),
    # Until the container is applied, ZooKeeper takes it for an ephemeral node and refuses the child.
    "child of a container with the flags of an ephemeral node": (
        Op.MULTI,
        multi_body((Op.CREATE_CONTAINER, create_body("/n", flags=1)), (Op.CREATE, create_body("/n/c"))),
    ),
    # ZooKeeper sets a watch that can never fire, or says that there is none.
    "addWatch of a null path": (Op.ADD_WATCH, text(None) + int_bytes(0)),
    "checkWatches of a null path": (Op.CHECK_WATCHES, text(None) + int_bytes(1)),
    "removeWatches of a null path": (Op.REMOVE_WATCHES, text(None) + int_bytes(1)),
    # ZooKeeper sends the results before the error behind an error that has no record by the protocol.
    "multiRead of a null path": (Op.MULTI_READ, multi_body((Op.GET_DATA, watched(None)))),
    "multiRead with a write": (Op.MULTI_READ, multi_body((Op.CREATE, create_body("/n")))),
    # ZooKeeper encodes two surrogates, which is no UTF-8.
    "characters beyond U+FFFF": (Op.SYNC, text("/\U0001f600")),
    # ZooKeeper uses up no zxid.
    "multi of a null path and a null ACL": (
        Op.MULTI,
        multi_body((Op.DELETE, versioned(None)), (Op.CREATE, create_body("/n", acl=int_bytes(-1)))),
    ),
}
"""Requests that the core answers differently, on purpose; the reasons stand at each.

Two more need two clients and are in `tests/keeper/test_watching.py`: events that `setWatches` derives need permission to read,
and ephemeral nodes end in the order of their creation.
"""


ROUND = 10_000
"""Conversations with the same two servers; the tree of a longer round would make each of them slow."""


class Talk:
    """One server's side of all conversations."""

    def __init__(self, server: Server) -> None:
        self.namer = Namer()
        self._server = server
        self._peers: list[Peer | None] = [None] * CLIENTS
        self._sessions: list[tuple[int, bytes]] = [(0, bytes(16))] * CLIENTS

    def begin(self) -> None:
        """Open all sessions, and count zxids from here."""
        for client in range(CLIENTS):
            self._connect(client)
        peer = self._peers[0]
        assert peer is not None
        peer.send(PING)
        frames, _ = peer.frames(1, 0)
        self.namer.base_zxid = int.from_bytes(frames[0][4:12], "big")

    def _connect(self, client: int) -> Plain:
        """Connect a client, with its session if it has one, and with a new one if that is gone."""
        peer = self._server.connect()
        peer.send(handshake(*self._sessions[client]))
        frames, _ = peer.frames(0, 1)
        found = response(self.namer, frames[0])
        session = int.from_bytes(frames[0][8:16], "big")
        self._sessions[client] = (session, frames[0][20:36])
        if older := self._peers[client]:
            older.close()
        self._peers[client] = peer
        if session == 0:
            return (found, self._connect(client))
        return found

    def perform(self, step: Step) -> list[Plain]:
        """Return what all clients hear of a step."""
        heard = list[Plain]()
        if step.resumes or self._peers[step.client] is None:
            heard.append(self._connect(step.client))
        peer = self._peers[step.client]
        assert peer is not None
        if step.closes:
            peer.send(step.data)
            frames, is_closed = peer.frames(0, sys.maxsize)
        else:
            peer.send(step.data + PING)
            frames, is_closed = peer.frames(step.pings + 1, 0)
        heard.append((step.client, self._plain(frames, step), is_closed))
        if is_closed:
            self._gone(step.client)
        for client, other in enumerate(self._peers):
            if client != step.client and other is not None:
                other.send(PING)
                frames, is_closed = other.frames(1, 0)
                heard.append((client, self._plain(frames, step), is_closed))
                if is_closed:
                    self._gone(client)
        return heard

    def _plain(self, frames: list[bytes], step: Step) -> Plain:
        found = [reply(self.namer, frame, step.ops) for frame in frames]
        # ZooKeeper ends the ephemeral nodes of a session in the order of a hash table.
        return tuple(sorted(found, key=str) if step.closes else found)

    def _gone(self, client: int) -> None:
        peer = self._peers[client]
        assert peer is not None
        peer.close()
        self._peers[client] = None

    def end(self) -> None:
        """Close all sessions: what they leave must not end in the middle of a later conversation."""
        for client in range(CLIENTS):
            if self._peers[client] is None:
                self._connect(client)
            peer = self._peers[client]
            assert peer is not None
            peer.send(CLOSE)
            peer.frames(0, 1)
            self._gone(client)
            self._sessions[client] = (0, bytes(16))


def differs(servers: tuple[Server, Server], op: int, body: bytes) -> bool:
    """Return whether the servers answer one request differently."""
    heard = list[list[Plain]]()
    for server in servers:
        talk = Talk(server)
        talk.begin()
        heard.append(talk.perform(Step(0, request(1, op, body), {1: op})))
        talk.end()
    return heard[0] != heard[1]


class Difference(Exception):
    """The servers answered differently."""


def compare(servers: tuple[Server, Server], seed: int, examples: int) -> int:
    """Hold conversations with both servers; return how many replies and events were compared.

    Meanwhile the core sends events that `setWatches` derives without a look at permissions, as ZooKeeper does: whether a node
    may be read depends on the conversations before.

    Raises
    ------
    Difference
        With the conversation up to there; those before it have made the tree, so a repetition begins with the same seed.
    """
    with mutant_of("derived-events-unchecked").patch().mutated():
        return _compare([Talk(server) for server in servers], seed, examples)


def _compare(talks: list[Talk], seed: int, examples: int) -> int:
    compared = 0
    for number in range(seed, seed + examples):
        for talk in talks:
            talk.begin()
        told = list[str]()
        for step in Drawing(number, f"/c{number:07d}").steps():
            ours, theirs = (talk.perform(step) for talk in talks)
            told.append(f"{step}\n    {ours}")
            if ours != theirs:
                raise Difference("\n".join([f"conversation {number}:", *told, "    ZooKeeper:", f"    {theirs}"]))
            compared += sum(len(each[1]) for each in ours if isinstance(each[1], tuple))
        for talk in talks:
            talk.end()
    return compared


def main(arguments: list[str]) -> int:
    """Run as many conversations as asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    compared, end = 0, options.seed + options.examples
    for seed in range(options.seed, end, ROUND):
        with tempfile.TemporaryDirectory() as folder, real_server(Path(folder)) as server:
            try:
                compared += compare((MemoryServer(), server), seed, min(ROUND, end - seed))
            except Difference as difference:
                sys.stdout.write(f"begun with seed {seed}, {difference}\n")
                return 1
    sys.stdout.write(f"{options.examples} conversations, {compared} replies and events, all alike\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
