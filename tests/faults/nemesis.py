"""Carries out a schedule: hurts processes, sessions, the ensemble, links and disks, and heals them again.

Each kind of strike is one function that hurts, yields, and heals.  A strike that finds nothing to hurt (no leader, no session
yet) does nothing, and says so.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.faults.cluster import CLIENT, FaultCluster
from tests.faults.disk import flip
from tests.faults.proxy import HELD, Condition, Link
from tests.faults.schedule import BOTH, DOWN, UP, Round, Scene, Strike
from tests.waiting import wait_for

READY_S_MAX = 120.0
EXPIRE_S_MAX = 10.0
OPPOSITE = {UP: DOWN, DOWN: UP, BOTH: BOTH}

Say: TypeAlias = Callable[[str], object]


class Nemesis:
    """Hurts a cluster, round by round.

    Parameters
    ----------
    cluster
        What is hurt.
    check
        Called with replica and part after a part was corrupted, as a reader would find it.
    say
        Told what happens.
    """

    def __init__(
        self, cluster: FaultCluster, check: Callable[[str, str], object] = lambda *_: None, say: Say = print
    ) -> None:
        self.cluster = cluster
        self.struck: Counter[str] = Counter()
        self.done: list[tuple[Strike, int, int]] = []
        """Strikes that are over, with their begin and end (monotonic nanoseconds)."""
        self.restarts = 0
        self._check = check
        self._say = say
        self._began = time.monotonic()
        self._victim = ""

    @property
    def scene(self) -> Scene:
        """What there is to be hurt."""
        return Scene(self.cluster.names, self.cluster.servers, self.cluster.session_timeout_s)

    def round(self, what: Round) -> None:
        """Carry out one round; at its end everything is healed."""
        threading.Event().wait(what.quiet_s)
        self._tell(f"round {what.number}: {'; '.join(map(str, what.strikes))}")
        began = time.monotonic()
        hurting: dict[int, ExitStack] = {}
        try:
            for moment, number in moments(what.strikes):
                self._wait_until(began + moment)
                if number in hurting:
                    hurting.pop(number).close()
                else:
                    hurting[number] = ExitStack()
                    hurting[number].enter_context(self.strike(what.strikes[number]))
        finally:
            for strike in hurting.values():
                strike.close()
        if what.calm:
            self.calm()

    def calm(self) -> None:
        """Wait until every replica serves."""
        wait_for(self._is_calm, "every replica serves", READY_S_MAX)

    def _is_calm(self) -> bool:
        self.look_after()
        return all(self.cluster.process(name).is_ready() for name in self.cluster.names)

    def look_after(self) -> None:
        """Start replicas that gave up because they found no ZooKeeper."""
        self.restarts += self.cluster.look_after()

    @contextmanager
    def strike(self, what: Strike) -> Iterator[None]:
        """Return a context that hurts at its begin and heals at its end."""
        self.struck[what.kind] += 1
        name = what.kind.removeprefix("long-").replace("-", "_")
        strike: Callable[[Strike], AbstractContextManager[None]] = getattr(self, f"_{name}")
        begun_ns = time.monotonic_ns()
        with strike(what):
            yield
        self.done.append((what, begun_ns, time.monotonic_ns()))

    def _wait_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            self.look_after()
            threading.Event().wait(min(left, 0.2))

    def _tell(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._began:7.2f} s  {text}")

    # --- processes ---

    @contextmanager
    def _kill(self, what: Strike) -> Iterator[None]:
        for name in what.targets:
            self.cluster.process(name).kill()
        yield
        for name in what.targets:
            self.cluster.process(name).launch()

    _kill_two = _kill_all = _kill

    @contextmanager
    def _pause(self, what: Strike) -> Iterator[None]:
        pids = [self.cluster.process(name).pid for name in what.targets]
        with _stopped([pid for pid in pids if pid]):
            yield

    # --- sessions ---

    @contextmanager
    def _expire(self, what: Strike) -> Iterator[None]:
        """End a session as the ensemble would: by a second connection with its number and password, which closes it."""
        for name in what.targets:
            session = self.cluster.session_of(name)
            ended = session is not None and end_session(self.cluster.ensemble.url, session)
            if not ended:
                self._tell(f"         {name} has no session to be ended")
        yield

    # --- the ensemble ---

    @contextmanager
    def _zk_kill(self, what: Strike) -> Iterator[None]:
        with self._without([self.cluster.servers.index(name) for name in what.targets]):
            yield

    _zk_kill_most = _zk_kill_all = _zk_kill

    @contextmanager
    def _zk_kill_leader(self, _: Strike) -> Iterator[None]:
        with self._without(self._leader()):
            yield

    @contextmanager
    def _zk_pause_leader(self, _: Strike) -> Iterator[None]:
        pids = [self.cluster.ensemble.pid(index) for index in self._leader()]
        with _stopped([pid for pid in pids if pid]):
            yield

    @contextmanager
    def _cut_ensemble(self, what: Strike) -> Iterator[None]:
        with self._cut_between(*what.targets, what=what):
            yield

    @contextmanager
    def _isolate_server(self, what: Strike) -> Iterator[None]:
        """Cut a server from all others; whoever is connected to it stays so."""
        with ExitStack() as cuts:
            for other in self._other_servers(what.targets[0]):
                cuts.enter_context(self._cut_between(what.targets[0], other, what=what))
            yield

    @contextmanager
    def _lag_follower(self, what: Strike) -> Iterator[None]:
        """Let a replica's server of the ensemble hear late what its leader says, or only in the end."""
        servers = self.cluster.servers
        leader = self.cluster.ensemble.leader()
        if leader is None:
            self._tell("         the ensemble has no leader to lag behind")
            yield
            return
        followers = [server for server in servers if server != servers[leader]]
        mine = [server for server in followers if self.cluster.link(what.targets[0], server).open_connections]
        follower = random.Random(what.seed).choice(mine or followers)
        self._tell(f"         {follower} lags behind {servers[leader]}")
        late = Condition(delay_s=what.amount) if what.amount else HELD
        with (
            changed((self.cluster.link(servers[leader], follower),), late, UP),
            changed((self.cluster.link(follower, servers[leader]),), late, DOWN),
        ):
            yield

    @contextmanager
    def _slow_ensemble(self, what: Strike) -> Iterator[None]:
        (name,), slow = what.targets, Condition(delay_s=what.amount)
        from_it = [self.cluster.link(name, other) for other in self._other_servers(name)]
        to_it = [self.cluster.link(other, name) for other in self._other_servers(name)]
        with changed(from_it, slow, what.way), changed(to_it, slow, OPPOSITE[what.way]):
            yield

    @contextmanager
    def _cut_between(self, first: str, second: str, *, what: Strike) -> Iterator[None]:
        """Cut two servers from each other, whichever of them has begun a connection; ``up``: what the first one sends."""
        link = self.cluster.link
        with held((link(first, second),), what), held((link(second, first),), replace(what, way=OPPOSITE[what.way])):
            yield

    def _other_servers(self, name: str) -> list[str]:
        return [other for other in self.cluster.servers if other != name]

    def _leader(self) -> list[int]:
        leader = self.cluster.ensemble.leader()
        self._tell(f"         the ensemble's leader is {'nobody' if leader is None else self.cluster.servers[leader]}")
        return [] if leader is None else [leader]

    @contextmanager
    def _without(self, servers: Sequence[int]) -> Iterator[None]:
        for index in servers:
            self.cluster.ensemble.kill_server(index)
        yield
        for index in servers:
            self.cluster.ensemble.start_server(index, wait=False)

    # --- links ---

    def _ensemble_links(self, name: str) -> tuple[Link, ...]:
        return self.cluster.links(name, *self.cluster.servers)

    def _peer_links(self, name: str) -> tuple[Link, ...]:
        return self.cluster.links(name, *(other for other in self.cluster.names if other != name))

    @contextmanager
    def _cut_zookeeper(self, what: Strike) -> Iterator[None]:
        with held(self._ensemble_links(what.targets[0]), what):
            yield

    @contextmanager
    def _cut_server(self, what: Strike) -> Iterator[None]:
        with held((self.cluster.link(*what.targets),), what):
            yield

    @contextmanager
    def _cut_peers(self, what: Strike) -> Iterator[None]:
        first, second = what.targets
        with held((self.cluster.link(first, second), self.cluster.link(second, first)), what):
            yield

    @contextmanager
    def _cut_client(self, what: Strike) -> Iterator[None]:
        with held((self.cluster.link(CLIENT, what.targets[0]),), what):
            yield

    @contextmanager
    def _isolate(self, what: Strike) -> Iterator[None]:
        with held(self.cluster.links(what.targets[0]), what):
            yield

    @contextmanager
    def _slow_zookeeper(self, what: Strike) -> Iterator[None]:
        with changed(self._ensemble_links(what.targets[0]), Condition(delay_s=what.amount), what.way):
            yield

    @contextmanager
    def _slow_peers(self, what: Strike) -> Iterator[None]:
        slow = Condition(delay_s=what.amount, bytes_per_s=100_000)
        with changed(self._peer_links(what.targets[0]), slow, what.way):
            yield

    @contextmanager
    def _reset(self, what: Strike) -> Iterator[None]:
        for link in self.cluster.links(what.targets[0]):
            link.reset()
        yield

    @contextmanager
    def _refuse(self, what: Strike) -> Iterator[None]:
        links = self.cluster.links(what.targets[0])
        for link in links:
            link.refuse(refusing=True)
            link.reset()
        yield
        for link in links:
            link.refuse(refusing=False)

    # --- disks ---

    @contextmanager
    def _disk_full(self, what: Strike) -> Iterator[None]:
        disk = self.cluster.disks[what.targets[0]]
        disk.fill()
        yield
        disk.mend()

    @contextmanager
    def _disk_failing(self, what: Strike) -> Iterator[None]:
        disk = self.cluster.disks[what.targets[0]]
        disk.fail(what.amount, what.seed)
        yield
        disk.mend()

    @contextmanager
    def _corrupt(self, what: Strike) -> Iterator[None]:
        """Damage a part that another replica has too, and let somebody find out.

        One replica of a run has the bad disk: were the same part bad everywhere, its rows would rightly be lost.
        """
        name = self._victim = self._victim or what.targets[0]
        elsewhere = {
            part for other in self.cluster.names if other != name for part in self.cluster.disks[other].parts()
        }
        parts = self.cluster.disks[name].parts()
        choice = sorted(elsewhere.intersection(parts))
        chance = random.Random(what.seed)
        part = chance.choice(choice) if choice else ""
        if part and flip(parts[part], chance):
            self._tell(f"         {name} has a corrupt {part}")
            self._check(name, part)
        yield


def moments(strikes: Sequence[Strike]) -> list[tuple[float, int]]:
    """Return when strikes begin and end, in order: seconds from the begin of the round, and the strike's number."""
    return sorted(
        (moment, number)
        for number, strike in enumerate(strikes)
        for moment in (strike.after_s, strike.after_s + strike.hold_s)
    )


@contextmanager
def _stopped(pids: Sequence[int]) -> Iterator[None]:
    """Stop processes (SIGSTOP), and let them go on."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        with suppress(ProcessLookupError):  # it was killed meanwhile
            os.kill(pid, signal.SIGCONT)


@contextmanager
def changed(links: Sequence[Link], condition: Condition, way: str) -> Iterator[None]:
    """Impose a condition on links, in one direction or both."""
    up, down = way != DOWN, way != UP
    for link in links:
        link.impose(condition, up=up, down=down)
    yield
    for link in links:
        link.lift(condition, up=up, down=down)


@contextmanager
def held(links: Sequence[Link], what: Strike) -> Iterator[None]:
    """Cut links; in the end what they hold comes late, or is lost."""
    with changed(links, HELD, what.way):
        yield
        if what.drops:
            for link in links:
                link.reset()


def end_session(url: str, session: tuple[int, bytes]) -> bool:
    """Close a session of somebody else; False when it had ended, or the ensemble did not answer."""
    servers = url.removeprefix("zk://").partition("/")[0]
    client = KazooClient(hosts=servers, client_id=session, timeout=EXPIRE_S_MAX)
    try:
        client.start(EXPIRE_S_MAX)
        return bool(client.client_id and client.client_id[0] == session[0])
    except (KazooException, KazooTimeoutError):
        return False
    finally:
        with suppress(KazooException, KazooTimeoutError):
            client.stop()
            client.close()
