"""The coordination tree as a value: what ZooKeeper's nodes are, without a server, a clock or a thread.

Guarantees, each compared with a real ZooKeeper 3.9.5 by ``tests/coordination``:

* `Tree.commit` is all or nothing, in order, and an operation sees what the ones before it did.  The first operation that
  does not hold is reported, and then nothing changed and no sequence number was used up.
* A node is born at version 0; `Set` adds one; a node that is deleted and created again starts at 0 once more.
* The number of a sequential node is the count of children ever created under its parent, of any kind: dense, not touched by
  deletions, lost when the parent itself is deleted.
* An ephemeral node belongs to the session that created it, can't have children, and goes with `expire`.
* A tree never changes.  A new one shares with the old whatever is equal; a commit costs what the folders it touches hold.
* `hash(tree)` is kept up to date by every commit, at the cost of what changed.  It depends on the content alone: not on the
  order of history, the process, or ``PYTHONHASHSEED``.  Equal trees are equal in everything that a later commit can see.

Absent on purpose: which sessions are alive (the holder of the tree knows), ACLs, times and transaction ids of nodes,
watches (`woken` says which ones a commit fires).

How it is kept: one dict from the path of each *folder* (a node under which a child was ever created) to a plain tuple of the
count of creations and the dict of children.  A commit copies the outer dict and the folders it writes.  Plain tuples because
building a class instance costs more than all the rest; the explorer commits some hundred thousand times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from xxhash import xxh3_64_intdigest

from replitree.protocol.core import effects as fx

Session: TypeAlias = int
"""Identifies a session; positive."""

PERSISTENT: Session = 0
"""Owner of the nodes that no session owns."""

_Znode: TypeAlias = tuple[fx.Node, Session, int]
"""What a read returns of a node, the session that owns the node, and its share of the tree's hash."""

_Folder: TypeAlias = tuple[int, dict[str, _Znode]]
"""Children ever created, children by name."""

_ROOT = fx.Node(b"", fx.Version(0))
_APPLIED = fx.Applied()
_NO_NAME = "only a node with a name can be written: not the root, and no path that ends in /"


class Tree:
    """An immutable tree of nodes.

    Examples
    --------
    >>> tree, outcome = Tree().commit((fx.Create("/log"), fx.Create("/log/log-", b"first", sequential=True)), session=1)
    >>> outcome.created
    ('/log', '/log/log-0000000000')
    >>> tree.get("/log/log-0000000000")
    Node(value=b'first', version=0)
    >>> tree.commit((fx.Check("/log", 3),), session=1)[1]
    Refused(operation=Check(path='/log', version=3), reason=<Reason.BAD_VERSION: 'bad version'>)
    """

    __slots__ = ("_folders", "_mark")

    _folders: dict[str, _Folder]
    _mark: int

    def __init__(self) -> None:
        self._folders = {}
        self._mark = 0

    @classmethod
    def of(cls, values: Mapping[str, bytes]) -> Tree:
        """Build a tree of persistent nodes; missing parents are created empty.

        Parameters
        ----------
        values
            Value of each node by its path.

        Examples
        --------
        >>> Tree.of({"/a/b": b"x"}).paths()
        ('/a', '/a/b')
        """
        # With all parents: a node is below another one.
        paths = sorted({path.rsplit("/", up)[0] for path in values for up in range(path.count("/"))})
        tree, outcome = cls().commit([fx.Create(path, values.get(path, b"")) for path in paths], session=1)
        assert isinstance(outcome, fx.Applied), outcome
        return tree

    # --- reads --------------------------------------------------------------------------------------------------------

    def get(self, path: str) -> fx.Node | None:
        """Return a node's value and version, or None when there is no such node."""
        parent, _, name = path.rpartition("/")
        folder = self._folders.get(parent)
        if folder is not None:
            znode = folder[1].get(name)
            if znode is not None:
                return znode[0]
        return _ROOT if path == "/" else None

    def exists(self, path: str) -> bool:
        """Say whether there is such a node."""
        return self.get(path) is not None

    def children(self, path: str) -> tuple[str, ...] | None:
        """Return the names of a node's children in ascending order, or None when there is no such node."""
        folder = self._folders.get(path if path != "/" else "")
        if folder is not None:
            return tuple(sorted(folder[1]))
        return () if self.exists(path) else None

    def next_sequence(self, path: str) -> int | None:
        """Return the number that the next sequential child of `path` gets, or None when there is no such node."""
        folder = self._folders.get(path if path != "/" else "")
        if folder is not None:
            return folder[0]
        return 0 if self.exists(path) else None

    def owner(self, path: str) -> Session | None:
        """Return the session that owns a node (`PERSISTENT` for a persistent one), or None when there is no such node."""
        parent, _, name = path.rpartition("/")
        folder = self._folders.get(parent)
        znode = None if folder is None else folder[1].get(name)
        if znode is not None:
            return znode[1]
        return PERSISTENT if path == "/" else None

    def ephemerals(self, session: Session) -> tuple[str, ...]:
        """Return the paths of the session's ephemeral nodes in ascending order.  Costs as much as there are nodes."""
        assert session > PERSISTENT
        found = [
            f"{parent}/{name}"
            for parent, (_, children) in self._folders.items()
            for name, znode in children.items()
            if znode[1] == session
        ]
        return tuple(sorted(found))

    def paths(self) -> tuple[str, ...]:
        """Return the paths of all nodes but the root, in ascending order."""
        return tuple(sorted(f"{parent}/{name}" for parent, (_, children) in self._folders.items() for name in children))

    def shares(self, other: Tree, path: str) -> bool:
        """Return, at no cost, whether another tree has the same children of a node because none was written since."""
        return self._folders.get(path) is other._folders.get(path)

    # --- changes ------------------------------------------------------------------------------------------------------

    def commit(self, operations: Iterable[fx.Operation], session: Session) -> tuple[Tree, fx.Applied | fx.Refused]:
        """Perform all operations in order, or none.

        Parameters
        ----------
        operations
            What to do.
        session
            Owner of the ephemeral nodes among them.

        Returns
        -------
        tuple
            The tree after it and the outcome.  A refused commit returns this same tree.
        """
        draft = _Draft(self._folders, self._mark, session)
        for operation in operations:
            reason = _PERFORM[type(operation)](draft, operation)
            if reason is not None:
                return self, fx.Refused(operation, reason)
        applied = fx.Applied(tuple(draft.created)) if draft.created else _APPLIED
        # Nothing was written: the same object tells the explorer, at no cost, that the state is the same.
        if not draft.fresh:
            return self, applied
        tree: Tree = Tree.__new__(Tree)
        tree._folders = draft.folders
        tree._mark = draft.mark
        return tree, applied

    def expire(self, session: Session) -> Tree:
        """Return the tree without the ephemeral nodes of a session that ended."""
        return self.commit([fx.Delete(path, fx.ANY_VERSION) for path in self.ephemerals(session)], session)[0]

    def renamed(
        self, path: Callable[[str], str], value: Callable[[bytes], bytes], owner: Callable[[Session], Session]
    ) -> Tree:
        """Return the tree with other paths, values and sessions, and the same versions and counts.

        Parameters
        ----------
        path, value, owner
            What becomes of each; no two paths become one, and parents stay parents.
        """
        tree = Tree()
        for parent, (count, children) in self._folders.items():
            inside: dict[str, _Znode] = {}
            for name, (node, session, _) in children.items():
                there, now, whose = path(f"{parent}/{name}"), value(node.value), owner(session)
                mark = _node_mark(there, now, node.version, whose)
                inside[there.rpartition("/")[2]] = (fx.Node(now, node.version, node.changed_ms), whose, mark)
                tree._mark ^= mark
            tree._folders[path(parent)] = (count, inside)
            tree._mark ^= _count_mark(path(parent), count)
        return tree

    # --- as a value ---------------------------------------------------------------------------------------------------

    # (`typing.override`, which the type checker wants below, is not in Python 3.11.)

    def __eq__(self, other: object) -> bool:  # type: ignore[explicit-override]
        """Compare everything that a later read or commit could tell apart."""
        if not isinstance(other, Tree):
            return NotImplemented
        # The mark first: unequal trees are told apart without a look at their nodes.
        return self._mark == other._mark and self._folders == other._folders

    def __hash__(self) -> int:  # type: ignore[explicit-override]
        """Return the hash that the commits kept up to date."""
        # Python folds a hash of more than 61 bits; one of 61 it takes as it is.
        return self._mark >> 3

    @property
    def fingerprint(self) -> int:
        """All 64 bits of the hash."""
        return self._mark

    def __iter__(self) -> Iterator[str]:
        """Iterate over the paths in ascending order."""
        return iter(self.paths())

    def __repr__(self) -> str:  # type: ignore[explicit-override]
        """Show every node on a line: path, version, owner, value."""
        lines = []
        for path in self:
            node, owner = self.get(path), self.owner(path)
            assert node is not None
            lines.append(f"  {path} @{node.version}{f' of session {owner}' if owner else ''} {node.value!r}")
        return "\n".join([f"Tree of {len(lines)} nodes", *lines])


class _Draft:
    """A commit under way: shares the folders of the tree it started from until it writes them."""

    __slots__ = ("created", "folders", "fresh", "mark", "session")

    def __init__(self, folders: dict[str, _Folder], mark: int, session: Session) -> None:
        self.folders = folders
        self.mark = mark
        self.session = session
        self.fresh: set[str] = set()  # the folders that are copies of this draft
        self.created: list[str] = []

    def check(self, operation: fx.Check) -> fx.Reason | None:
        parent, _, name = operation.path.rpartition("/")
        folder = self.folders.get(parent)
        znode = None if folder is None else folder[1].get(name)
        if znode is None:
            return self.check_root(operation) if operation.path == "/" else fx.Reason.NO_NODE
        if operation.version not in (fx.ANY_VERSION, znode[0].version):
            return fx.Reason.BAD_VERSION
        return None

    def check_root(self, operation: fx.Check) -> fx.Reason | None:
        return None if operation.version in (fx.ANY_VERSION, _ROOT.version) else fx.Reason.BAD_VERSION

    def create(self, operation: fx.Create) -> fx.Reason | None:
        parent, _, name = operation.path.rpartition("/")
        folder = self.folders.get(parent)
        # The parent has no children so far: it may be missing, or ephemeral.
        if folder is None:
            refusal = self.add_folder(parent)
            if refusal is not None:
                return refusal
            count = 0
        else:
            count = folder[0]
        assert name, _NO_NAME
        path = operation.path
        if operation.sequential:
            number = f"{count:010d}"
            name, path = name + number, path + number
        children = self.write(parent)
        if name in children:
            return fx.Reason.NODE_EXISTS
        owner = self.session if operation.ephemeral else PERSISTENT
        mark = _node_mark(path, operation.value, 0, owner)
        children[name] = (fx.Node(operation.value, fx.Version(0)), owner, mark)
        self.folders[parent] = (count + 1, children)
        self.mark ^= mark ^ _count_mark(parent, count) ^ _count_mark(parent, count + 1)
        self.created.append(path)
        return None

    def set(self, operation: fx.Set) -> fx.Reason | None:
        path = operation.path
        parent, _, name = path.rpartition("/")
        assert name, _NO_NAME
        folder = self.folders.get(parent)
        znode = None if folder is None else folder[1].get(name)
        if znode is None:
            return fx.Reason.NO_NODE
        node, owner, old_mark = znode
        if operation.version not in (fx.ANY_VERSION, node.version):
            return fx.Reason.BAD_VERSION
        version = node.version + 1
        mark = _node_mark(path, operation.value, version, owner)
        self.write(parent)[name] = (fx.Node(operation.value, fx.Version(version)), owner, mark)
        self.mark ^= old_mark ^ mark
        return None

    def delete(self, operation: fx.Delete) -> fx.Reason | None:
        path = operation.path
        parent, _, name = path.rpartition("/")
        assert name, _NO_NAME
        folder = self.folders.get(parent)
        znode = None if folder is None else folder[1].get(name)
        if znode is None:
            return fx.Reason.NO_NODE
        if operation.version not in (fx.ANY_VERSION, znode[0].version):
            return fx.Reason.BAD_VERSION
        own = self.folders.get(path)
        # A folder may be empty: its counter stays until the node itself is deleted.
        if own is not None and own[1]:
            return fx.Reason.NOT_EMPTY
        del self.write(parent)[name]
        self.mark ^= znode[2]
        if own is not None:
            self.mark ^= _count_mark(path, own[0])
            del self.folders[path]
            self.fresh.discard(path)
        return None

    def add_folder(self, path: str) -> fx.Reason | None:
        """Make a node that never had a child a folder."""
        if path:
            parent, _, name = path.rpartition("/")
            folder = self.folders.get(parent)
            znode = None if folder is None else folder[1].get(name)
            if znode is None:
                return fx.Reason.NO_NODE
            if znode[1] != PERSISTENT:
                return fx.Reason.NO_CHILDREN_FOR_EPHEMERALS
        # The outer dict is copied by the first write only: a commit that is refused before has cost nothing.
        if not self.fresh:
            self.folders = self.folders.copy()
        self.fresh.add(path)
        self.folders[path] = (0, {})
        return None

    def write(self, path: str) -> dict[str, _Znode]:
        """Return the children of a folder for writing."""
        fresh = self.fresh
        if path in fresh:
            return self.folders[path][1]
        if not fresh:
            self.folders = self.folders.copy()
        fresh.add(path)
        count, children = self.folders[path]
        # Other trees share the old one.
        children = children.copy()
        self.folders[path] = (count, children)
        return children


_PERFORM: dict[type, Callable[[_Draft, fx.Operation], fx.Reason | None]] = {
    fx.Check: _Draft.check,  # type: ignore[dict-item]  # each method takes exactly the operation it stands next to
    fx.Create: _Draft.create,  # type: ignore[dict-item]
    fx.Set: _Draft.set,  # type: ignore[dict-item]
    fx.Delete: _Draft.delete,  # type: ignore[dict-item]
}


def _node_mark(path: str, value: bytes, version: int, owner: Session) -> int:
    """Return a node's share of the hash.  No path holds a zero byte, so different nodes are different texts."""
    return xxh3_64_intdigest(f"{path}\0{version} {owner}\0".encode() + value)


def _count_mark(path: str, count: int) -> int:
    """Return the share of a folder's counter; nothing for a node that never had a child."""
    return xxh3_64_intdigest(f"{path}\0\0{count}".encode()) if count else 0


# --- what the interpreters share --------------------------------------------------------------------------------------


Read: TypeAlias = fx.Get | fx.GetMany | fx.Exists | fx.Children | fx.ChildrenMany | fx.NextNumber | fx.Sync


def answer(tree: Tree, read: Read) -> fx.Node | fx.Many | bool | tuple[str, ...] | fx.Lists | int | None:
    """Return the outcome of a read effect on a tree.  Watches are the caller's business.

    Examples
    --------
    >>> answer(Tree.of({"/a": b"x"}), fx.Children("/"))
    ('a',)
    """
    match read:
        case fx.Get(path):
            return tree.get(path)
        case fx.GetMany(paths, watch):
            return fx.Many(tuple(map(tree.get, paths)), watch is not None and tree.exists(watch))
        case fx.Exists(path):
            return tree.exists(path)
        case fx.Children(path):
            return tree.children(path)
        case fx.ChildrenMany(paths):
            return tuple(map(tree.children, paths))
        case fx.NextNumber(path):
            return tree.next_sequence(path)
        case fx.Sync():
            return None


def woken(operations: Iterable[fx.Operation], outcome: fx.Applied) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Say which watches an applied commit fires, operation by operation.

    Yields
    ------
    tuple
        For each operation the paths whose node watches fire (`Exists`, `GetMany`) and those whose children watches fire
        (`Children`).  As in ZooKeeper a node watch also fires when the value is set; deleting a node fires both kinds on
        it, of which a session hears once.

    Examples
    --------
    >>> list(woken([fx.Create("/a"), fx.Delete("/b", 0)], fx.Applied(("/a",))))
    [(('/a',), ('/',)), (('/b',), ('/b', '/'))]
    """
    created = iter(outcome.created)
    for operation in operations:
        match operation:
            case fx.Create():
                path = next(created)
                yield (path,), (_parent(path),)
            case fx.Set(path):
                yield (path,), ()
            case fx.Delete(path):
                yield (path,), (path, _parent(path))
            case fx.Check():
                yield (), ()


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
