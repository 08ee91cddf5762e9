"""What must hold of a simulated sharded table: each shard is a table; over all of them J1 to J5 and D1 to D10 hold.

D7 and D8 are about pruned reads and feeds, which these runs do not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from msgspec import UNSET
from typing_extensions import override

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import ClientAnswer, EntryId, JointId, LogIndex, RequestId
from replitree.protocol.core.entries import (
    AlterEntry,
    Command,
    DropEntry,
    Entry,
    FailEntry,
    GetEntry,
    MutateEntry,
    SettleEntry,
    StorageEntry,
    quorum_of,
)
from replitree.protocol.core.layout import Replica, TablePlace
from replitree.protocol.core.stamps import Zxid
from replitree.protocol.sharded import places
from replitree.protocol.sharded.shard_map import Shard, decode_map
from replitree_verify.process.read_requests import Shown, ShowRows, Told
from replitree_verify.rules.invariants import READS, SEAT_READS, Look, inserts_are_applied_once, quiet_states_agree
from replitree_verify.rules.scope import covered_rows_are_mutated
from replitree_verify.simulation.observer import Observer, Violated
from replitree_verify.simulation.options import Options
from replitree_verify.world.disk import Disk, requests_in
from replitree_verify.world.memory import Memory
from replitree_verify.world.model import Insert

LEFT_OUT = (inserts_are_applied_once,)
"""A joint insert's entry names no token; D4 is checked over all shards.  Where buckets move, MUTATED is left out, too: the
entries that delete the rows of a batch, one for each partition, have one command, and the rule tells commands apart by it."""


REMOVAL = "moved"
"""With what the commands begin that delete rows which have moved: the buckets follow, up to an ``n``."""

Piece: TypeAlias = tuple[str, int]
"""The rows of one insert of a client in one bucket: its token, and the bucket."""


class SentRows(NamedTuple):
    """Rows of one shard: the tokens of the inserts that they are of, and the version of the map by which they were split."""

    tokens: tuple[str, ...]
    shard: Shard
    map_version: int


@dataclass(frozen=True, slots=True)
class CameEntry:
    """An entry of a joint insert, or the end of its quorum, its transaction, and the requests whose rows it has."""

    shard: Shard
    index: int
    zxid: Zxid
    entry: GetEntry | SettleEntry | FailEntry
    requests: frozenset[int] = frozenset()


@dataclass(slots=True)
class CameInsert:
    """A joint insert that is in the logs: its tokens, in how many shards it is to be, its entries, and their ends."""

    tokens: tuple[str, ...]
    shards: int
    entries: list[CameEntry] = field(default_factory=list)
    ends: list[CameEntry] = field(default_factory=list)

    @property
    def counts_from(self) -> Zxid | None:
        """The transaction from which on its rows are shown; None: not yet, or never."""
        if not quorum_of(self.entries[0].entry):
            return self.entries[0].zxid
        settles = [each.zxid for each in self.ends if isinstance(each.entry, SettleEntry)]
        return settles[0] if settles else None

    @property
    def has_failed(self) -> bool:
        """Whether its quorum was given up."""
        return any(isinstance(each.entry, FailEntry) for each in self.ends)


class ShardObserver(Observer):
    """Checks one shard as any table, and tells the judge of its joint inserts."""

    def __init__(
        self,
        shard: Shard,
        place: TablePlace,
        judge: Judge,
        replicas: tuple[str, ...],
        options: Options,
        tree: Tree,
        disks: dict[str, Disk],
    ) -> None:
        super().__init__(replicas, options, tree, disks, place)
        self.shard, self._judge = shard, judge
        # Replicas write down what is open: that is compared only where inserts have quorums.
        self._inserts[-1] = Insert(self.replicas[0], (), quorum=2)

    @override
    def seen(self, probe: str) -> None:
        self._judge.probes[probe] += 1

    @override
    def changed(self, tree: Tree, who: str, breach: str | None) -> None:
        if breach is not None:
            raise Violated(breach)
        if not self.is_dropping and tree.exists(layout.dropped(self.table)):
            self.is_dropping = True
        # Before the first replica has joined no replica is good.
        if self.is_dropping:
            self.tree = tree
            return
        if not tree.children(layout.replicas(self.table)):
            before, self.tree = self.tree, tree
            # A replica of another shard may have brought a command.
            self._read_log(before)
            return
        super().changed(tree, who, breach)

    @override
    def _appended(self, before: Tree, entry: Entry, index: LogIndex) -> None:
        self._judge.appended(self.shard, index)
        if isinstance(entry, GetEntry):
            folder = self.disks[entry.replica].folder(entry.insert)
            if folder is None or folder.torn:
                raise Violated(f"J3: {entry.replica} does not have the rows of {entry.insert}")
            self._judge.came(self.shard, index, entry, before)
            return
        super()._appended(before, entry, index)
        if isinstance(entry, MutateEntry) and entry.id.startswith(REMOVAL):
            self._judge.removed(self.shard, index, entry)
        elif isinstance(entry, MutateEntry | DropEntry | AlterEntry | StorageEntry):
            self._judge.commanded(self.shard, index, entry)
        if isinstance(entry, SettleEntry | FailEntry):
            self._judge.ended(self.shard, index, entry)

    @override
    def answered(self, request: RequestId, answer: ClientAnswer) -> None:
        self.on_answer(request, answer)

    @override
    def shown(self, effect: ShowRows, told: Told, breach: str | None) -> None:
        if breach is not None:
            raise Violated(breach)
        self._judge.placed(effect.number, self.shard, effect.position)
        self.on_answer(effect.number, told)

    @override
    def look(self, *arguments: Any, **named: Any) -> Look:
        found = super().look(*arguments, **named)
        return replace(found, disks={name: found.disks[name] for name in self.replicas})

    @override
    def check_all(self, memories: Mapping[str, Memory]) -> None:
        look = self.look(memories, self.replicas)
        left_out = (*LEFT_OUT, covered_rows_are_mutated) if self._judge.pieces else LEFT_OUT
        for invariant in (each for each in (*READS, *SEAT_READS, quiet_states_agree) if each not in left_out):
            wrong = invariant(look)
            if wrong is not None:
                raise Violated(f"{wrong} (shard {self.shard})")


class Judge:
    """Checks what holds over all shards of one table.

    Parameters
    ----------
    root, name, shards
        Where the table is, and its shards.
    """

    def __init__(self, root: str, name: str, shards: Collection[Shard]) -> None:
        self.root, self.name, self.shards = root, name, frozenset(shards)
        self.probes: Counter[str] = Counter()
        self.full: set[str] = set()
        self.sent: dict[int, SentRows] = {}
        self.inserts: dict[JointId, CameInsert] = {}
        self.acknowledged: dict[JointId, Zxid] = {}
        self.refused: set[JointId] = set()
        self.zxid: Callable[[], Zxid] = lambda: Zxid(0)
        self.commands: dict[EntryId, list[tuple[Shard, Zxid]]] = {}
        self.pieces: dict[int, tuple[Piece, ...]] = {}
        """What each request has rows of, where buckets move."""
        self._removals: dict[Shard, list[tuple[int, Zxid, frozenset[int]]]] = {}
        self._entry_of: dict[tuple[Shard, int], int] = {}
        self.drops: dict[Shard, list[tuple[int, Zxid]]] = {}
        """Of each shard the entries that drop all rows, and their transactions."""
        self.server_of: dict[str, str] = {}
        """The server of each replica, where servers have one of each shard."""
        self.cuts: dict[int, Zxid] = {}
        """Of each read of a shard the cut that it asks for."""
        self._logs: dict[Shard, list[tuple[int, Zxid]]] = {}
        self._touched: set[JointId] = set()
        self._who = ""

    # --- what comes into the logs -----------------------------------------------------------------------------------------

    def came(self, shard: Shard, index: int, entry: GetEntry, before: Tree) -> None:
        """Take note of an entry of a joint insert, and check J5 and D6."""
        requests = frozenset(int(row) for part in entry.parts for row in requests_in(part.content_hash))
        sent = {self.sent[request] for request in requests}
        if len(sent) != 1 or next(iter(sent)).shard != shard:
            raise Violated(f"D6: the entry at {index} of shard {shard} has the rows of {sorted(sent)}")
        (rows,) = sent
        node = before.get(layout.shard_map(layout.sharded(self.root, self.name)))
        if node is None or node.version != rows.map_version:
            raise Violated(f"D6: rows of {rows.tokens} come that were split by another map than there is")
        # An insert into one shard has no id of its own; what is staged for it names it.
        joint = JointId(entry.insert) if entry.joint is UNSET else entry.joint
        insert = self.inserts.setdefault(joint, CameInsert(rows.tokens, 1 if entry.shards is UNSET else entry.shards))
        replica = Replica(self.place(before, shard), entry.replica)
        # What a process has staged for all shards needs no session but its own.
        is_apart = self._server_of(entry.replica) != self._server_of(self._who)
        if is_apart and not before.exists(layout.is_active(replica)):
            raise Violated(f"J5: {entry.insert} comes, and {entry.replica} has no session")
        insert.entries.append(CameEntry(shard, index, self.zxid(), entry, requests))
        self._entry_of |= {(shard, request): index for request in requests}
        self._touched.add(joint)

    def _server_of(self, name: str) -> str:
        return self.server_of.get(name, name)

    def ended(self, shard: Shard, index: int, entry: SettleEntry | FailEntry) -> None:
        """Take note of the end of a quorum."""
        for joint, insert in self.inserts.items():
            if any(each.shard == shard and each.index == entry.index for each in insert.entries):
                insert.ends.append(CameEntry(shard, index, self.zxid(), entry))
                self._touched.add(joint)

    def appended(self, shard: Shard, index: int) -> None:
        """Take note of an entry of whatever kind."""
        self._logs.setdefault(shard, []).append((index, self.zxid()))

    def commanded(self, shard: Shard, index: int, entry: Command) -> None:
        """Take note of a command's entry in one shard."""
        self.commands.setdefault(entry.id, []).append((shard, self.zxid()))
        if isinstance(entry, DropEntry):
            self.drops.setdefault(shard, []).append((index, self.zxid()))

    def removed(self, shard: Shard, index: int, entry: MutateEntry) -> None:
        """Take note of what deletes rows that have moved from a shard."""
        buckets = frozenset(map(int, entry.command.removeprefix(REMOVAL).partition("n")[0].split(".")))
        self._removals.setdefault(shard, []).append((index, self.zxid(), buckets))

    def pieces_shown(self, shard: Shard, requests: Iterable[int], zxid: Zxid) -> list[Piece]:
        """Return what a shard shows at a cut: the rows of requests without those that have moved away."""
        removals = [(index, buckets) for index, at, buckets in self._removals.get(shard, ()) if at <= zxid]
        return [
            (token, bucket)
            for request in requests
            for token, bucket in self.pieces[request]
            if not any(self._entry_of[shard, request] < index and bucket in its for index, its in removals)
        ]

    def _has_left(self, came: CameEntry, zxid: Zxid) -> bool:
        """Whether the rows of an entry were dropped by a transaction."""
        return any(came.index < index and at <= zxid for index, at in self.drops.get(came.shard, ()))

    def told_of_command(self, command: EntryId) -> None:
        """Check a command of which a client has heard that it is in all shards (D5)."""
        if command not in self.commands:
            raise Violated(f"D5: {command} is said to be in the logs of all shards, and is in none")

    def placed(self, number: int, shard: Shard, position: int) -> None:
        """Check where a read stands: all entries up to its cut lie below, and no other one does (D2)."""
        cut, log = self.cuts[number], self._logs.get(shard, [])
        wrong = [index for index, zxid in log if (zxid <= cut) is not (index < position)]
        if wrong:
            raise Violated(
                f"D2: shard {shard} is read up to {position} at {cut}, which is wrong of the entry at {wrong[0]}"
            )

    def place(self, tree: Tree, shard: Shard) -> TablePlace:
        """Return where a shard is."""
        node = tree.get(layout.sharded(self.root, self.name))
        return places.shard_place(self.root, self.name, shard, "" if node is None else node.value.decode())

    def begin_change(self, who: str) -> None:
        """Take note of the process, or the client, that has changed coordination."""
        self._who = who

    def end_change(self, tree: Tree) -> None:
        """Check a change, when all shards have been looked at: WHOLE, J1, J2 and D4."""
        self.check_whole(tree)
        for command, entries in self.commands.items():
            # Nothing runs before the table is there, so each shard has a log by then.
            is_once = sorted(shard for shard, _ in entries) == sorted(self.shards)
            if not is_once or len({zxid for _, zxid in entries}) > 1:
                raise Violated(f"D5: {command} is in the logs of the shards as {sorted(entries)}")
        for joint in self._touched:
            insert = self.inserts[joint]
            if len({each.zxid for each in insert.entries}) > 1 or len(insert.entries) != insert.shards:
                raise Violated(
                    f"J1: {joint} has {len(insert.entries)} of its {insert.shards} entries at one transaction"
                )
            ends = insert.ends
            kinds = {(each.zxid, type(each.entry)) for each in ends}
            if ends and (len(kinds) > 1 or len({each.shard for each in ends}) != len(ends)):
                raise Violated(f"J2: {joint} ends in {len(ends)} of {len(insert.entries)} shards at one transaction")
            if ends and len(ends) != len(insert.entries):
                raise Violated(f"J2: {joint} ends in {len(ends)} of {len(insert.entries)} shards")
            if joint in self.refused:
                raise Violated(f"J4: {joint} was refused, and is in the logs")
            # A token may be applied again when everything that it has brought was dropped before.
            came = insert.entries[0].zxid
            again = [
                each
                for each, other in self.inserts.items()
                if each != joint
                and {*other.tokens} & {*insert.tokens}
                and not other.has_failed
                and other.entries[0].zxid <= came
                and not all(self._has_left(entry, came) for entry in other.entries)
            ]
            if again and not insert.has_failed:
                raise Violated(f"D4: {insert.tokens} is applied as {sorted((*again, joint))}")
        self._touched.clear()

    def check_whole(self, tree: Tree) -> None:
        """WHOLE: a table that is there has all its shards, and none of them is being dropped."""
        place = layout.sharded(self.root, self.name)
        node, made = tree.get(layout.shard_map(place)), tree.get(place)
        if node is None or made is None:
            return
        for shard in decode_map(node.value, place).shards:
            table = places.shard_place(self.root, self.name, shard, made.value.decode())
            found = tree.get(table.path)
            if found is None or found.value.decode() != table.incarnation or tree.exists(layout.dropped(table)):
                raise Violated(f"WHOLE: the map is there, and shard {shard} is not, or is another one")

    # --- what clients hear ------------------------------------------------------------------------------------------------

    def acknowledge(self, token: str) -> JointId:
        """Check an insert of which a client has heard that it counts (J4), remember it, and return its name."""
        found = [
            each for each, insert in self.inserts.items() if token in insert.tokens and insert.counts_from is not None
        ]
        if not found:
            raise Violated(f"J4: {token} was acknowledged, and counts in no shard")
        # Those before were dropped (D4).
        self.acknowledged[found[-1]] = self.inserts[found[-1]].counts_from or Zxid(0)
        return found[-1]

    def refuse(self, joint: JointId) -> None:
        """Check a joint insert of which a client has heard that it never takes place (J4)."""
        if joint in self.inserts:
            raise Violated(f"J4: {joint} is refused, and in the logs")
        self.refused.add(joint)

    def read(
        self, zxid: Zxid, shown: Mapping[Shard, Shown], due: frozenset[JointId], last: Zxid, *, is_own: bool = False
    ) -> None:
        """Check what a read shows at a cut (D1, D2, D3, D9, D10).

        Parameters
        ----------
        zxid, shown
            The cut, and what each shard that was asked has shown.
        due
            The inserts that had been acknowledged when a linearizable read began; of an own read those of its client.
        last
            The reader's cut before.
        is_own
            Whether this is a consistent read of a client that inserts.
        """
        if zxid < last:
            raise Violated(f"D9: a reader reads at {zxid}, and had read at {last}")
        there = {
            joint: insert
            for joint, insert in self.inserts.items()
            if insert.counts_from is not None and insert.counts_from <= zxid
        }
        for shard, rows in shown.items():
            tokens = Counter(token for request in rows.requests for token in self.sent[request].tokens)
            wanted = Counter(
                token
                for each in there.values()
                if any(entry.shard == shard and not self._has_left(entry, zxid) for entry in each.entries)
                for token in each.tokens
            )
            if tokens != wanted:
                raise Violated(f"D1: shard {shard} shows {sorted(tokens)} at {zxid}, it has {sorted(wanted)}")
        if self.pieces:
            self._check_pieces(zxid, shown, there.values())
        for insert in self.inserts.values():
            its = [each.shard for each in insert.entries if each.shard in shown]
            seen = [each.shard for each in insert.entries if each.requests & {*shown[each.shard].requests}]
            if seen and len(seen) != len(its):
                raise Violated(f"D2: {insert.tokens} is shown in {seen}, and not in all of {its}")
        late = sorted(due - there.keys())
        if late:
            rule = "D10" if is_own else "D3"
            raise Violated(f"{rule}: {late} were acknowledged before the read began, and are not in its cut {zxid}")

    def _check_pieces(self, zxid: Zxid, shown: Mapping[Shard, Shown], there: Iterable[CameInsert]) -> None:
        """Check that each row of a client is shown once over all shards, wherever its bucket lies (D1)."""
        due = Counter(
            piece
            for insert in there
            for entry in insert.entries
            if not self._has_left(entry, zxid)
            for request in entry.requests
            for piece in self.pieces[request]
            # Batches bring no rows of their own.
            if piece[0] in insert.tokens
        )
        seen = Counter(
            piece for shard, rows in shown.items() for piece in self.pieces_shown(shard, rows.requests, zxid)
        )
        if due != seen:
            lacks, more = sorted((due - seen).elements()), sorted((seen - due).elements())
            raise Violated(f"D1: a read at {zxid} lacks {lacks}, and shows {more} too much")
