"""The tree in coordination: the paths below a table, and the names of its numbered nodes.

No other module builds a path.  The tree is design 3.1; operators who know ClickHouse will recognise it::

    <table>/metadata, columns
    <table>/restoring                     exists while the nodes are made anew from a replica's parts
    <table>/log/log-NNNNNNNNNN            entries, persistent sequential; the node says where the log begins
    <table>/log.2/log-NNNNNNNNNN          its second parent, when the numbers of the first were nearly used up; and so on
    <table>/open/log.2                    exists while entries may be appended to a parent
    <table>/blocks/<block id>             one per recent insert request
    <table>/streams/<stream id>           the last batch of each stream (`protocol.insert.stream`)
    <table>/quorum/status/<insert id>     who has the parts of an insert whose quorum is open (`protocol.insert.quorum`)
    <table>/leader_election/leader-N      ephemeral sequential; the first leads
    <table>/results/<part>                content hash of a merge's or mutation's result, as its first publisher recorded it
    <table>/drops/<partition>             blocks below this index were dropped, so their rows may be inserted again
    <table>/views                         its materialised views, and those that write to it (`protocol.core.views`)
    <table>/tags/<name>                   an earlier version of the table whose parts stay (`protocol.upkeep.tags`)
    <table>/consumers/<name>              up to where a named reader has read the feed (`protocol.upkeep.consumers`)
    <table>/epochs/<r>                    the last epoch of a replica of this name that was dropped (`protocol.core.epochs`)
    <table>/zero_copy_s3/shared/<id>/<owner>  an owner of a share: objects of several replicas' parts (`protocol.shares.share`)
    <table>/zero_copy_s3/garbage/<id>     a share without owners, whose objects are still to be deleted
    <table>/zero_copy_s3/restored         the table was made anew from a disk (`protocol.rescue.restore_shared`)
    <table>/zero_copy_s3/merged/<part>    ephemeral: which replica makes this result for all (`protocol.state.work_mark`)
    <replicas>/<r>/host                   its version is the replica's epoch
    <replicas>/<r>/is_active              ephemeral
    <replicas>/<r>/is_lost
    <replicas>/<r>/log_pointer            index of the next entry to pull, and of the inserts that are open there
    <replicas>/<r>/queue/queue-N          pulled and not yet executed, named by index
    <replicas>/<r>/parts/<part>           registered parts, value: content hash
    <replicas>/<r>/prepared/<staging>     which process has staged this for a joint insert (`protocol.sharded.prepare`)
    <replicas>/<r>/dropped                exists from the moment that the replica is taken out of the table

where ``<replicas>`` is ``<table>/replicas-<incarnation>``, and the incarnation is the value of ``<table>``: another one each
time that a table's nodes are made, by its creation or by a restore.  Every commit of a replica checks a node of its own, so a
late commit to an earlier table of this name finds that node gone, and is refused.  (Tables of earlier
versions have no incarnation; theirs are below ``<table>/replicas``.)

and beside the tables::

    sharded/<D>/…                         a sharded table: more of its nodes are in `protocol.sharded.places`
    sharded/<D>/map                       which shard has which rows of a sharded table; its version is that of the map
    sharded/<D>/tokens/<block id>         one per recent joint insert (`protocol.sharded.joint_insert`)
    sharded/<D>/joint/<id>                exists while the quorum of a joint insert is open (`protocol.insert.joint_quorum`)
    servers/<replica>~<incarnation>       ephemeral: where a server process is
    stores/<name>                         URL of an object store that servers have given a name
    dropped_objects/<table id>            what a dropped table may have left in its store: the store's id and URL
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from replitree.errors import InvalidName, UnsupportedFormat
from replitree.protocol.core.effects import BlockId, JointId, LogIndex, Node, StagingId, StreamId

NAME_LENGTH_MAX = 100
STREAM_LENGTH_MAX = 300
"""Characters of the name of a stream's node."""

REPLICAS = "replicas"
"""Begins the name of the parent of a table's replicas."""

PARENT_ENTRIES = 1 << 31
"""Indexes that belong to one parent of log entries."""

INDEX_DIGITS_MAX = 30
"""Digits of an index: more than any table reaches, and few enough that a damaged value costs nothing."""

INCARNATION_LENGTH = 16
"""Hexadecimal digits of a table's incarnation, drawn at random: any two tables of one name differ."""

_PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_PERCENT = re.compile(rb"%([0-9A-F]{2})")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_INCARNATION = re.compile(rb"[0-9A-Za-z_-]{1,64}")
_REPLICA = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table's place: its path, and the parent that new log entries go below.

    Sequential numbers are 31 bits wide in ZooKeeper, so a log goes on below a fresh parent in time
    (`protocol.propose.roll_over`).  The index of an entry is ``parent * PARENT_ENTRIES + number``.

    Attributes
    ----------
    incarnation
        Which of the tables that this path has had.  Empty: a table of an earlier version, or the caller has not
        read it: it needs the table's own nodes only, and not those of its replicas.
    """

    path: str
    parent: int = 0
    incarnation: str = ""

    @property
    def name(self) -> str:
        """The table's name: the end of its path."""
        return self.path.rpartition("/")[2]

    def below(self, parent: int) -> TablePlace:
        """Return the same table, whose log has gone on below another parent."""
        return replace(self, parent=parent)


def table_at(path: str, node: Node | None) -> TablePlace:
    """Return the table whose own node was read; None: there is none.

    Raises
    ------
    UnsupportedFormat
        The node's value is not the incarnation of a table.

    >>> table_at("/t", Node(b"5f0c", 0))
    TablePlace(path='/t', parent=0, incarnation='5f0c')
    """
    value = b"" if node is None else node.value
    if value and _INCARNATION.fullmatch(value) is None:
        raise UnsupportedFormat(f"{path} has the value {value[:100]!r}, which is no incarnation: restore the node")
    return TablePlace(path, incarnation=value.decode())


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica of a table."""

    table: TablePlace
    name: str


def check_table_name(name: str) -> str:
    """Return `name` if a table may have it.

    Raises
    ------
    InvalidName
        It is not a letter followed by letters, digits and underscores, or is too long.

    >>> check_table_name("events")
    'events'
    """
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise InvalidName(
            f"{name!r} can't be a table's name: use letters, digits and _, a letter first, at most {NAME_LENGTH_MAX}"
        )
    return name


def check_replica_name(name: str) -> str:
    """Return `name` if a replica may have it.

    Raises
    ------
    InvalidName
        It has characters that are not letters, digits, ``-`` or ``_``, or is too long.
    """
    if not _REPLICA.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise InvalidName(
            f"{name!r} can't be a replica's name: use letters, digits, - and _, a letter or digit first,"
            f" at most {NAME_LENGTH_MAX}"
        )
    return name


def all_dropped_objects(root: str) -> str:
    """Return the parent of the notes about tables that were dropped while their object store was away."""
    return f"{root.rstrip('/')}/dropped_objects"


def dropped_objects(root: str, table_id: str) -> str:
    """Return the note that a dropped table may have objects left; its value is their store's id and URL."""
    return f"{all_dropped_objects(root)}/{table_id}"


def servers(root: str) -> str:
    """Return the parent of what server processes say about themselves."""
    return f"{root.rstrip('/')}/servers"


def server(root: str, name: str, incarnation: str) -> str:
    """Return the node of one server process: it has the session, and its value is its identity."""
    return f"{servers(root)}/{name}~{incarnation}"


def server_name(node: str) -> str:
    """Return whose replicas a server's node is about.

    >>> server_name("r1~0f")
    'r1'
    """
    return node.partition("~")[0]


def stores(root: str) -> str:
    """Return the parent of the object stores that servers have given a name."""
    return f"{root.rstrip('/')}/stores"


def store(root: str, name: str) -> str:
    """Return the node of an object store by its name; its value is the URL."""
    return f"{stores(root)}/{name}"


def tables(root: str) -> str:
    """Return the folder of all tables of a cluster whose nodes lie below `root`."""
    return f"{root.rstrip('/')}/tables"


def root_of(table: TablePlace) -> str:
    """Return the path below which the nodes of a table's cluster lie."""
    return table.path.rpartition("/tables/")[0]


def table_path(root: str, name: str) -> str:
    """Return the path of the table `name`."""
    return f"{tables(root)}/{check_table_name(name)}"


def sharded(root: str, name: str) -> str:
    """Return the node of a sharded table, whose shards are tables beside it.

    >>> sharded("/replitree", "events")
    '/replitree/sharded/events'
    """
    return f"{root.rstrip('/')}/sharded/{name}"


def shard_map(place: str) -> str:
    """Return the node that says which shard of the sharded table at `place` has which rows."""
    return f"{place}/map"


def joint_tokens(place: str) -> str:
    """Return the parent of the deduplication ids of a sharded table."""
    return f"{place}/tokens"


def joint_token(place: str, token: BlockId) -> str:
    """Return the node of one deduplication id of a sharded table."""
    return f"{joint_tokens(place)}/{token}"


def joint_inserts(place: str) -> str:
    """Return the parent of the joint inserts of a sharded table whose quorum is open."""
    return f"{place}/joint"


def joint_insert(place: str, joint: JointId) -> str:
    """Return the node of a joint insert; it is there exactly as long as its quorum is open."""
    return f"{joint_inserts(place)}/{joint}"


def sharded_of(shard: TablePlace) -> str:
    """Return the node of the sharded table that a table is a shard of.

    >>> sharded_of(TablePlace("/replitree/tables/events~3"))
    '/replitree/sharded/events'
    """
    return sharded(root_of(shard), shard.name.rpartition("~")[0])


def metadata(table: TablePlace) -> str:
    """Return the node that holds the table's identity, keys and settings."""
    return f"{table.path}/metadata"


def columns(table: TablePlace) -> str:
    """Return the node that holds the table's columns and their schema version."""
    return f"{table.path}/columns"


def dropped(table: TablePlace) -> str:
    """Return the node that exists from the moment a drop of the table has begun."""
    return f"{table.path}/dropped"


def restoring(table: TablePlace) -> str:
    """Return the node that exists while a table's nodes are made anew, with the name of the replica whose parts it gets."""
    return f"{table.path}/restoring"


def log(table: TablePlace) -> str:
    """Return the first parent of the log's entries, whose value says where the log begins."""
    return log_parent(table, 0)


MOVING = "moving-"
"""Begins the names of the claims on parts that move."""


def log_parent(table: TablePlace, parent: int) -> str:
    """Return one parent of the log's entries; the first is number 0.

    >>> log_parent(TablePlace("/t"), 0), log_parent(TablePlace("/t"), 1)
    ('/t/log', '/t/log.2')
    """
    return f"{table.path}/{_parent_name(parent)}"


def _parent_name(parent: int) -> str:
    return "log" if parent == 0 else f"log.{parent + 1}"


def open_logs(table: TablePlace) -> str:
    """Return the parent of the marks that let entries be appended."""
    return f"{table.path}/open"


def open_log(table: TablePlace, parent: int | None = None) -> str:
    """Return the mark that lets entries be appended below a parent: the given one, or that of the table's place."""
    return f"{table.path}/open/{_parent_name(table.parent if parent is None else parent)}"


def parent_named(mark: str) -> int:
    """Return the number of the parent that a mark's name stands for.

    >>> parent_named("log"), parent_named("log.2")
    (0, 1)
    """
    return int(mark.removeprefix("log.")) - 1 if mark.startswith("log.") else 0


def parent_of(index: int) -> int:
    """Return the number of the parent that an index belongs to."""
    return index // PARENT_ENTRIES


def at_pointer(replica: Replica, pointer: int) -> Replica:
    """Return a replica that appends below the parent that its pointer has reached."""
    return Replica(replica.table.below(parent_of(pointer)), replica.name)


def log_create(table: TablePlace) -> str:
    """Return the path to create sequentially: the next log entry."""
    return f"{log_parent(table, table.parent)}/log-"


def log_entry(table: TablePlace, index: int) -> str:
    """Return the node of the entry at `index`.

    >>> log_entry(TablePlace("/t"), 41)
    '/t/log/log-0000000041'
    """
    parent, number = divmod(index, PARENT_ENTRIES)
    return f"{log_parent(table, parent)}/log-{number:010d}"


def index_of(table: TablePlace, path: str) -> LogIndex:
    """Return the index of the log entry at `path`.

    >>> index_of(TablePlace("/t"), "/t/log/log-0000000041"), index_of(TablePlace("/t"), "/t/log.2/log-0000000041")
    (41, 2147483689)
    """
    parent, _, number = path.removeprefix(f"{table.path}/").partition("/log-")
    before = int(parent.removeprefix("log.")) - 1 if parent.startswith("log.") else 0
    return LogIndex(before * PARENT_ENTRIES + int(number))


def blocks(table: TablePlace) -> str:
    """Return the parent of the deduplication ids."""
    return f"{table.path}/blocks"


def block(table: TablePlace, block_id: BlockId) -> str:
    """Return the node of one deduplication id."""
    return f"{table.path}/blocks/{block_id}"


def check_stream_id(stream: str) -> StreamId:
    """Return `stream` if a stream may have this id.

    Raises
    ------
    InvalidName
        It is empty, too long, or consists of dots.
    """
    if not 1 <= len(_quoted(stream)) <= STREAM_LENGTH_MAX or not stream.strip("."):
        raise InvalidName(
            f"{stream[:NAME_LENGTH_MAX]!r} can't be a stream's id: use at most {STREAM_LENGTH_MAX} letters, digits, _, . and -"
        )
    return StreamId(stream)


def streams(table: TablePlace) -> str:
    """Return the parent of the table's streams; it comes with the first of them, and its version counts their removals."""
    return f"{table.path}/streams"


def stream(table: TablePlace, stream_id: StreamId) -> str:
    """Return the node of one stream.

    >>> stream(TablePlace("/t"), StreamId("etl/orders"))
    '/t/streams/etl%2Forders'
    """
    return f"{streams(table)}/{_quoted(stream_id)}"


def stream_id_of(name: str) -> StreamId:
    """Return a stream's id from the name of its node.

    >>> stream_id_of("etl%2Forders")
    'etl/orders'
    """
    return StreamId(_PERCENT.sub(lambda code: bytes((int(code[1], 16),)), name.encode()).decode())


def _quoted(text: str) -> str:
    """Return a text as the name of a node: percent-encoded, as in a URL."""
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in text.encode())


def quorum_statuses(table: TablePlace) -> str:
    """Return the parent of the inserts whose quorum is open."""
    return f"{table.path}/quorum/status"


def quorum_status(table: TablePlace, insert: StagingId) -> str:
    """Return the node that says who has an insert's parts; it is there exactly as long as its quorum is open."""
    return f"{table.path}/quorum/status/{insert}"


def leader_election(table: TablePlace) -> str:
    """Return the parent of those who stand for leader."""
    return f"{table.path}/leader_election"


def leader_create(table: TablePlace) -> str:
    """Return the path to create sequentially to stand for leader."""
    return f"{table.path}/leader_election/leader-"


def results(table: TablePlace) -> str:
    """Return the parent of the results of merges and mutations."""
    return f"{table.path}/results"


def result(table: TablePlace, name: str) -> str:
    """Return the node that says what content a merged or mutated part has."""
    return f"{table.path}/results/{name}"


def drops(table: TablePlace) -> str:
    """Return the parent of what is remembered of drops."""
    return f"{table.path}/drops"


def drop(table: TablePlace, partition: str) -> str:
    """Return the node with the index below which a partition's blocks were dropped."""
    return f"{table.path}/drops/{partition}"


def views(table: TablePlace) -> str:
    """Return the node with the table's materialised views; it comes with the first of them, and its version counts changes."""
    return f"{table.path}/views"


def beside(table: TablePlace, name: str, incarnation: str = "") -> TablePlace:
    """Return another table of the same cluster.

    >>> beside(TablePlace("/replitree/tables/a"), "b").path
    '/replitree/tables/b'
    """
    return TablePlace(f"{table.path.rpartition('/')[0]}/{name}", incarnation=incarnation)


def tags(table: TablePlace) -> str:
    """Return the parent of the table's tags; it comes with the first of them, and its version counts their changes."""
    return f"{table.path}/tags"


def tag(table: TablePlace, name: str) -> str:
    """Return the node of one tag."""
    return f"{tags(table)}/{name}"


def consumers(table: TablePlace) -> str:
    """Return the parent of the table's consumers; it comes with the first of them, and its version counts their changes."""
    return f"{table.path}/consumers"


def consumer(table: TablePlace, name: str) -> str:
    """Return the node of one consumer."""
    return f"{consumers(table)}/{name}"


def epochs(table: TablePlace) -> str:
    """Return the parent of the notes about replicas that were dropped; it comes with the first of them."""
    return f"{table.path}/epochs"


def last_epoch(replica: Replica) -> str:
    """Return the node with the last epoch of the earlier replica of this name."""
    return f"{epochs(replica.table)}/{replica.name}"


def replicas(table: TablePlace) -> str:
    """Return the parent of all replicas."""
    return f"{table.path}/{REPLICAS}{f'-{table.incarnation}' if table.incarnation else ''}"


def replica_path(replica: Replica) -> str:
    """Return the replica's own node."""
    return f"{replicas(replica.table)}/{replica.name}"


def host(replica: Replica) -> str:
    """Return the node whose value says who runs the replica and whose version is its epoch."""
    return f"{replica_path(replica)}/host"


def is_active(replica: Replica) -> str:
    """Return the ephemeral node that exists while the replica has a session."""
    return f"{replica_path(replica)}/is_active"


def is_lost(replica: Replica) -> str:
    """Return the node that is ``1`` when entries which the replica had not pulled were removed."""
    return f"{replica_path(replica)}/is_lost"


def log_pointer(replica: Replica) -> str:
    """Return the node with the index of the next entry to pull, and of the inserts that are open there."""
    return f"{replica_path(replica)}/log_pointer"


def pointer_value(index: int, opened: tuple[LogIndex, ...] = ()) -> bytes:
    """Return the value of a log pointer: where the replica stands, and the inserts whose quorum is open there, ascending.

    >>> pointer_value(41), pointer_value(41, (LogIndex(38), LogIndex(40)))
    (b'41', b'41 38,40')
    """
    text = f"{index} {','.join(map(str, opened))}" if opened else str(index)
    return text.encode()


def pointer_index(value: bytes) -> LogIndex:
    """Return the index of the next entry to pull from the value of a log pointer.

    Raises
    ------
    UnsupportedFormat
        The value is not that of a log pointer.

    >>> pointer_index(b"41"), pointer_index(b"41 38,40")
    (41, 41)
    """
    return _index(value.partition(b" ")[0], value)


def pointer_open(value: bytes) -> tuple[LogIndex, ...]:
    """Return the inserts whose quorum is open at a log pointer, from its value.  Raises as `pointer_index`.

    >>> pointer_open(b"41"), pointer_open(b"41 38,40")
    ((), (38, 40))
    """
    return tuple(_index(each, value) for each in value.partition(b" ")[2].split(b",") if each)


def _index(digits: bytes, value: bytes) -> LogIndex:
    """Return the index that some digits in the value of a log pointer are."""
    if not digits.isdigit() or len(digits) > INDEX_DIGITS_MAX:
        raise UnsupportedFormat(
            f"the value {value[:100]!r} of a log pointer can't be read: upgrade this replica, or restore the node"
        )
    return LogIndex(int(digits))


def queue(replica: Replica) -> str:
    """Return the parent of the entries that are pulled and not yet executed."""
    return f"{replica_path(replica)}/queue"


def queue_entry(replica: Replica, index: int) -> str:
    """Return the queue's node of the entry at `index`; named by index, not by number."""
    return f"{replica_path(replica)}/queue/queue-{index:010d}"


def queue_index(name: str) -> LogIndex:
    """Return the index of a queue node from its name or path.

    >>> queue_index("queue-0000000041")
    41
    """
    return LogIndex(int(name.rpartition("-")[2]))


def replica_dropped(replica: Replica) -> str:
    """Return the node that exists while a replica is being taken out of its table."""
    return f"{replica_path(replica)}/dropped"


def parts(replica: Replica) -> str:
    """Return the parent of the registered parts."""
    return f"{replica_path(replica)}/parts"


def part(replica: Replica, name: str) -> str:
    """Return the node by which the replica claims to have a part."""
    return f"{replica_path(replica)}/parts/{name}"


def all_prepared(replica: Replica) -> str:
    """Return the parent of what is staged for joint inserts; it comes with the first of them."""
    return f"{replica_path(replica)}/prepared"


def prepared(replica: Replica, staging: StagingId) -> str:
    """Return the node that exists while what is staged under an id waits for its joint insert."""
    return f"{all_prepared(replica)}/{staging}"


def sharing(table: TablePlace) -> str:
    """Return the node of a table whose parts lie in an object store; its value is the store's id."""
    return f"{table.path}/zero_copy_s3"


def all_writing(table: TablePlace) -> str:
    """Return the parent of the shares that are being written."""
    return f"{table.path}/zero_copy_s3/writing"


def writing(table: TablePlace, name: str) -> str:
    """Return the node of a share whose objects may be on their way, and that no replica owns yet."""
    return f"{all_writing(table)}/{name}"


def moving(table: TablePlace, name: str) -> str:
    """Return the ephemeral node by which a replica claims to move a part into the store."""
    return f"{table.path}/zero_copy_s3/{MOVING}{name}"


def shares(table: TablePlace) -> str:
    """Return the parent of all shares of objects."""
    return f"{table.path}/zero_copy_s3/shared"


def share(table: TablePlace, name: str) -> str:
    """Return the node of one share; its children are its owners."""
    return f"{shares(table)}/{name}"


def all_garbage(table: TablePlace) -> str:
    """Return the parent of the shares whose objects are to be deleted."""
    return f"{table.path}/zero_copy_s3/garbage"


def garbage(table: TablePlace, name: str) -> str:
    """Return the node of a share whose objects are to be deleted."""
    return f"{all_garbage(table)}/{name}"


def restored(table: TablePlace) -> str:
    """Return the node of a table that was restored: objects without a node may be those of parts that only disks know of."""
    return f"{table.path}/zero_copy_s3/restored"


def all_merged(table: TablePlace) -> str:
    """Return the parent of the work marks."""
    return f"{table.path}/zero_copy_s3/merged"


def merged(table: TablePlace, part: str) -> str:
    """Return the ephemeral node that says which replica makes a result that goes into an object store."""
    return f"{all_merged(table)}/{part}"
