"""The differential test: random conversations, sent to the core and to a real ZooKeeper, must be answered alike.

``python -m tests.keeper.differential --examples 10000 --seed 1`` runs as many as one wants.  What is compared, and what is left
out, says `normal`; on which differences we insist, `ON_PURPOSE`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.keeper.conversations import CLIENTS, Drawing, Step
from tests.keeper.frames import CLOSE, PING, handshake
from tests.keeper.normal import Namer, Plain, reply, response
from tests.keeper.peers import MemoryServer, Peer, Server, real_server

ON_PURPOSE: dict[str, str] = {}


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


class Difference(Exception):
    """The servers answered differently."""


def compare(
    servers: tuple[Server, Server], seed: int, examples: int, note: Callable[[int], None] = lambda _: None
) -> int:
    """Hold conversations with both servers; return how many replies and events were compared.

    Raises
    ------
    Difference
        With the conversation up to there.
    """
    talks = [Talk(server) for server in servers]
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
        note(number)
    return compared


def main(arguments: list[str]) -> int:
    """Run as many conversations as asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, real_server(Path(folder)) as server:
        try:
            compared = compare((MemoryServer(), server), options.seed, options.examples)
        except Difference as difference:
            sys.stdout.write(f"{difference}\n")
            return 1
    sys.stdout.write(f"{options.examples} conversations, {compared} replies and events, all alike\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
