"""Clients of a simulated sharded table: one inserts over shards as `client.sharded.insert.joint` does, one reads at cuts.

Requests and answers take a while, and may be lost; a client that hears nothing in time asks again, under the same token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.core.stamps import BEFORE_ALL, Zxid
from replitree.protocol.membership.activate import Replaced
from replitree.protocol.program.sharded.coordinator import JointRequest, OwnGone
from replitree.protocol.program.stages import Then
from replitree.protocol.sharded import places
from replitree.protocol.sharded.cut import Cut, CutEnd, cut_of
from replitree.protocol.sharded.joint_insert import JointInserted, MapChanged
from replitree.protocol.sharded.prepare import Participant, ParticipantGone
from replitree.protocol.sharded.shard_map import Shard, decode_map
from replitree_verify.process.read_requests import Shown
from replitree_verify.simulation.options import MS
from replitree_verify.simulation.sharded.shard_observer import Judge, Piece, SentRows
from replitree_verify.simulation.sharded.shard_process import Hear, ShardProcess
from replitree_verify.simulation.sharded.stamped_cluster import StampedCluster

BACKOFF = 200 * MS
AT_ONE = 0.7
"""Share of the tries that go to one server, where servers have all shards."""

FIRST_SERVER = 0.6
"""Share of these that go to the first server."""

ENSEMBLE = "e"


@dataclass(slots=True)
class Town:
    """What all clients know: the world, the processes of each shard, who judges, and numbers for requests."""

    cluster: StampedCluster
    judge: Judge
    processes: Mapping[str, ShardProcess]
    hosts: Mapping[Shard, tuple[str, ...]]
    place: str
    number: int = 0
    waiting: dict[int, Callable[[Any], None]] = field(default_factory=dict)
    """What hears the answer to a request that an observer hears first."""
    buckets: int = 0
    """How many buckets rows are of, where buckets move; 0: a client sends to whichever shards it likes."""
    at_one: Random | None = None
    """Servers have a replica of each shard: this draws which inserts go to one of them by one request."""
    submit: Callable[[str, Any], None] = lambda _replica, _asked: None
    """Hands rows for all shards to the server of a replica."""
    on_acknowledged: Callable[[Any], None] = lambda _client: None
    """Is called with the client whose insert was acknowledged."""

    def new_request(self) -> int:
        """Return a number that no request had."""
        self.number += 1
        return self.number

    def send(self, shard: Shard, ask: Callable[[ShardProcess], None]) -> str:
        """Send a request to some replica of a shard; return its name.  It may be lost, or find no active replica."""
        name = self.cluster.random.choice(self.hosts[shard])
        self.send_to(name, ask)
        return name

    def send_to(self, name: str, ask: Callable[[ShardProcess], None]) -> None:
        """Send a request to one replica."""

        def arrive() -> None:
            process = self.processes.get(name)
            if process is not None and process.is_active:
                ask(process)

        if not self.cluster.chance(self.cluster.options.loss):
            self.cluster.after(self.cluster.spread(self.cluster.options.delay), arrive)

    def back(self, hear: Hear) -> Hear:
        """Return what hears an answer a while later, or never."""

        def answer(told: Any) -> None:
            if not self.cluster.chance(self.cluster.options.loss):
                self.cluster.after(self.cluster.spread(self.cluster.options.delay), lambda: hear(told))

        return answer


@dataclass(frozen=True, slots=True)
class RowsOfAll:
    """What a client inserts by one request.

    Attributes
    ----------
    token, map_version
        Of the insert.
    pieces
        What the rows of each shard are of; empty pieces where no buckets move.
    hear
        Hears what became of it; None: the server does not know.
    """

    token: str
    map_version: int
    pieces: Mapping[Shard, tuple[Piece, ...]]
    hear: Hear

    @property
    def kind(self) -> object:
        """Requests of one kind may share a commit."""
        return self.map_version, tuple(sorted(self.pieces))


@dataclass(slots=True)
class Share:
    """What a replica has prepared, and where."""

    replica: str
    participant: Participant


class JointClient:
    """Inserts one after the other, each into some shards, until it is acknowledged.

    Parameters
    ----------
    name, count
        Its name, and how many inserts it makes.
    """

    def __init__(self, name: str, count: int, town: Town, quorums: float, quorum: int) -> None:
        self._name, self._left, self._town = name, count, town
        self._quorums, self._quorum = quorums, quorum
        self._token, self._wanted = "", 0
        self._shares: dict[Shard, Share] = {}
        self._map_version, self._turn, self._tries = -1, 0, 0
        self._buckets, self._owners = list[int](), tuple[Shard, ...]()
        self.written: dict[Shard, fx.LogIndex] = {}
        """The highest index in the log of each shard of which it was told, as `client.insert.terms.Written` has it."""
        self.acknowledged: set[fx.JointId] = set()

    @property
    def is_done(self) -> bool:
        """Whether every insert was acknowledged."""
        return not self._left and not self._token

    def next(self) -> None:
        """Begin the next insert after a while."""
        self._token = ""
        if self._left:
            cluster = self._town.cluster
            pause = cluster.spread(cluster.options.duration // 8) if cluster.faulty else BACKOFF
            if self._town.at_one is not None:
                # Clients begin together: a server has several inserts at once.
                step = cluster.options.duration // 16 if cluster.faulty else BACKOFF
                pause = step - cluster.now % step
            cluster.after(pause, self._begin)

    def _begin(self) -> None:
        self._left -= 1
        self._token, self._tries = f"{self._name}.{self._left}", 0
        self._wanted = self._quorum if self._town.cluster.chance(self._quorums) else 0
        self._split()

    # --- splitting and preparing --------------------------------------------------------------------------------------------

    def _split(self) -> None:
        """Read the map, and prepare by it; another map may send the rows to other shards."""
        town = self._town
        node = town.cluster.tree.get(layout.shard_map(town.place))
        assert node is not None, "the table is dropped when all inserts are done"
        self._abandon(list(self._shares.values()))
        self._shares.clear()
        self._map_version = node.version
        if town.buckets:
            drawn = Random(self._token)  # noqa: S311 - repeatable is what it must be
            owners = decode_map(node.value, "").owners
            self._buckets = sorted(drawn.sample(range(town.buckets), drawn.choice((1, 2, town.buckets // 2))))
            self._pieces = sorted({owners[bucket] for bucket in self._buckets})
            self._owners = owners
            self._prepare()
            return
        drawn = Random(f"{self._token}/{node.version}")  # noqa: S311 - repeatable is what it must be
        shards = sorted(town.hosts)
        self._pieces = sorted(drawn.sample(shards, drawn.choice((1, 2, len(shards)))))
        self._prepare()

    def _prepare(self) -> None:
        """Prepare the rows of the shards that have none prepared."""
        town, self._turn = self._town, self._turn + 1
        turn, version = self._turn, self._map_version
        self._tries += 1
        if town.at_one is not None and not self._wanted and not self._shares and town.at_one.random() < AT_ONE:
            self._send_to_one(turn, version)
            return
        for shard in self._pieces:
            if shard in self._shares:
                continue
            request = town.new_request()
            town.judge.sent[request] = SentRows((self._token,), shard, version)
            if town.buckets:
                town.judge.pieces[request] = self._pieces_of(shard)

            def ask(process: ShardProcess, shard: Shard = shard, request: int = request) -> None:
                name = process.name
                process.prepare(
                    request,
                    coordinates=shard == self._pieces[0],
                    hear=town.back(lambda told: self.hear_prepared(turn, shard, name, told)),
                )

            town.send(shard, ask)
        town.cluster.after(2 * town.cluster.options.session_timeout, lambda: self.look(turn))
        if len(self._shares) == len(self._pieces):
            self._commit()

    def _pieces_of(self, shard: Shard) -> tuple[Piece, ...]:
        """Return what the rows of a shard are of; where no buckets move that is not told apart."""
        return tuple((self._token, bucket) for bucket in self._buckets if self._owners[bucket] == shard)

    def _send_to_one(self, turn: int, version: int) -> None:
        """Send the rows of all shards to one server, as `client.sharded.insert.joint` does where one has all shards."""
        town = self._town
        pieces = {shard: self._pieces_of(shard) for shard in self._pieces}
        asked = RowsOfAll(self._token, version, pieces, town.back(lambda told: self._hear(turn, None, told)))
        assert town.at_one is not None
        names = town.hosts[self._pieces[0]]
        # Most go to one server, which has several at once then.
        name = names[0] if town.at_one.random() < FIRST_SERVER else town.at_one.choice(names)
        town.send_to(name, lambda process: town.submit(process.name, asked))
        town.cluster.after(2 * town.cluster.options.session_timeout, lambda: self.look(turn))

    def look(self, turn: int) -> None:
        """Ask again when no answer came in time."""
        if turn == self._turn and self._token:
            if len(self._shares) == len(self._pieces):
                self._drop(self._pieces[0])
            self._again()

    def _again(self) -> None:
        self._turn += 1
        turn, cluster = self._turn, self._town.cluster
        self._town.judge.probes["joint insert tried again"] += 1
        pause = min(max(BACKOFF, cluster.options.duration // 2_000), BACKOFF << min(self._tries, 8))
        cluster.after(cluster.spread(pause), lambda: self._prepare() if turn == self._turn and self._token else None)

    def hear_prepared(self, turn: int, shard: Shard, name: str, told: Any) -> None:
        """Hear what a replica has prepared; commit when all shards have."""
        if turn != self._turn or not isinstance(told, Participant) or shard in self._shares:
            return
        self._shares[shard] = Share(name, told)
        if len(self._shares) == len(self._pieces):
            self._commit()

    def _drop(self, shard: Shard) -> None:
        """Let what is prepared of a shard be given up."""
        share = self._shares.pop(shard, None)
        if share is not None:
            self._abandon([share])

    def _abandon(self, shares: list[Share]) -> None:
        for share in shares:
            staging = share.participant.staging
            self._town.send_to(share.replica, lambda process, staging=staging: process.give_up(staging))  # type: ignore[misc]

    # --- committing -----------------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        town, self._turn = self._town, self._turn + 1
        turn, request = self._turn, town.new_request()
        own, *others = (self._shares[shard] for shard in self._pieces)
        joint = fx.JointId(f"j{request}")
        asked = JointRequest(
            joint,
            fx.BlockId(self._token),
            fx.Version(self._map_version),
            own.participant.staging,
            tuple(each.participant for each in others),
            self._wanted,
        )
        # An answer that waits for a quorum is heard by this number.
        town.waiting[request] = town.back(lambda told: self._hear(turn, joint, told))
        hear = town.back(lambda told: self._hear(turn, joint, told))
        town.send_to(own.replica, lambda process: process.commit(request, asked, hear))
        town.cluster.after(2 * town.cluster.options.session_timeout, lambda: self.look(turn))

    def _hear(self, turn: int, joint: fx.JointId | None, told: Any) -> None:
        """Hear what became of a commit.  Certain refusals are checked also when they come too late; a group checks its own."""
        judge = self._town.judge
        is_refused = isinstance(told, MapChanged | ParticipantGone | OwnGone | fx.NotInserted | Replaced)
        if joint is not None and is_refused and not isinstance(told, Then):
            failed = joint in judge.inserts and judge.inserts[joint].has_failed
            if not failed:
                judge.refuse(joint)
        if turn != self._turn:
            return
        judge.probes[f"joint: {type(told).__name__}"] += 1
        match told:
            case Then():
                # Its quorum is waited for; the answer comes by the number of the request.
                self._note(told.outcome)
                return
            case JointInserted() | fx.Inserted() | fx.Duplicate():
                if isinstance(told, JointInserted) and told.is_duplicate:
                    judge.probes["joint duplicate"] += 1
                self._note(told)
                self.acknowledged.add(judge.acknowledge(self._token))
                self._town.on_acknowledged(self)
                self._shares.clear()
                self.next()
                return
            case MapChanged():
                self._split()
                return
            case ParticipantGone(gone):
                at = [shard for shard, share in self._shares.items() if share.participant.staging == gone.staging]
                self._drop(at[0] if at else self._pieces[0])
            case _:
                self._drop(self._pieces[0])
        self._again()

    def _note(self, told: Any) -> None:
        """Note where entries are: of an insert with a quorum its end is told by the shard that coordinates."""
        match told:
            case JointInserted():
                for name, index in told.written:
                    if index is not None:
                        shard = places.shard_number(name)
                        self.written[shard] = max(self.written.get(shard, fx.LogIndex(0)), index)
            case fx.Inserted(index, settled) | fx.Duplicate(int(index), settled):
                shard, at = self._pieces[0], index if settled is None else settled
                self.written[shard] = max(self.written.get(shard, fx.LogIndex(0)), at)


class CutReader:
    """Reads all shards at one cut after the other.

    Parameters
    ----------
    own
        The client whose reads these are: what it was told of is in its consistent cuts (D10).
    """

    def __init__(self, town: Town, own: JointClient | None = None) -> None:
        self._town, self._own = town, own
        self._last, self._turn = BEFORE_ALL, 0

    def read(self, *, linearizable: bool | None = None) -> None:
        """Begin a read, by default at some level; one that is under way is given up."""
        town, self._turn = self._town, self._turn + 1
        turn = self._turn
        self._seen: dict[Shard, tuple[str, CutEnd]] = {}
        self._shown: dict[Shard, Shown] = {}
        self._due = frozenset[fx.JointId]()
        if town.cluster.random.random() < 0.5 if linearizable is None else linearizable:
            self._due = frozenset(town.judge.acknowledged)
            shard = town.cluster.random.choice(sorted(town.hosts))
            hear = town.back(lambda told: self.hear_clock(turn, told))
            town.send(shard, lambda process: process.tell_the_clock(hear))
            return
        written = {} if self._own is None else dict(self._own.written)
        self._due = frozenset() if self._own is None else frozenset(self._own.acknowledged)
        for shard in town.hosts:

            def ask(process: ShardProcess, shard: Shard = shard) -> None:
                name = process.name
                process.see(town.back(lambda told: self.hear_seen(turn, shard, name, told)), written.get(shard))

            town.send(shard, ask)

    def hear_clock(self, turn: int, zxid: Zxid | None) -> None:
        """Hear the cut of a linearizable read."""
        if turn == self._turn and zxid is not None:
            self._show(turn, zxid, has_clock=True)

    def hear_seen(self, turn: int, shard: Shard, name: str, told: Any) -> None:
        """Hear what a replica has seen; show when one of every shard has answered."""
        if turn != self._turn or not isinstance(told, CutEnd):
            return
        self._seen[shard] = name, told
        if len(self._seen) == len(self._town.hosts):
            ends = [end for _, end in self._seen.values()]
            last = Cut(ENSEMBLE, self._last) if self._last else None
            written = max(end.written for end in ends)
            found = cut_of([Cut(ENSEMBLE, end.seen) for end in ends], last, written)
            assert isinstance(found, Cut)
            self._show(turn, found.zxid, has_clock=False)

    def _show(self, turn: int, zxid: Zxid, *, has_clock: bool) -> None:
        town = self._town
        for shard in town.hosts:
            number = town.new_request()

            def hear(told: Any, shard: Shard = shard) -> None:
                if turn == self._turn and isinstance(told, Shown):
                    self._shown[shard] = told
                    if len(self._shown) == len(town.hosts):
                        self.judge_read(zxid, has_clock=has_clock)
                elif turn == self._turn and told is not None:
                    town.judge.probes[f"cut: {type(told).__name__}"] += 1

            def ask(process: ShardProcess, shard: Shard = shard, number: int = number, hear: Hear = hear) -> None:
                # What was seen is known only to the replica that has seen it.
                known = self._seen.get(shard)
                end = known[1] if known is not None and known[0] == process.name else None
                process.show(number, zxid, end, has_clock=has_clock, hear=town.back(hear))

            town.waiting[number], town.judge.cuts[number] = town.back(hear), zxid
            town.send(shard, ask)

    def judge_read(self, zxid: Zxid, *, has_clock: bool) -> None:
        """End a read of which all shards have shown their rows."""
        town = self._town
        self._turn += 1
        town.judge.read(zxid, self._shown, self._due, self._last, is_own=self._own is not None and not has_clock)
        town.judge.probes["linearizable cut" if has_clock else "consistent cut"] += 1
        self._last = max(self._last, zxid)
