"""Effects on coordination."""

from __future__ import annotations

from replitree.protocol.core import effects as fx
from replitree.protocol.core import layout
from replitree.protocol.rescue.fsck_look import ListAges
from replitree_verify.effects.numbers import Numbers, union
from replitree_verify.effects.row import (
    COORDINATION,
    EVERYTHING,
    MEMORIES,
    MEMORY,
    Row,
    Touches,
)
from replitree_verify.effects.words import commit_text, path_text, paths_text
from replitree_verify.outcomes import branches
from replitree_verify.probes.catalog import probes_of_commit
from replitree_verify.process.fsck import RepairCommit
from replitree_verify.world.model import TABLE


def _written(on: Numbers, commit: fx.Commit, _disk: int) -> int:
    written = on.bit("coordination")
    for operation in commit.operations:
        parent, _, name = operation.path.rpartition("/")
        match operation:
            case fx.Create():
                # Two sequential creates in a folder depend on each other, because the first gets the lower number.
                at = on.bit("numbered", parent) if operation.sequential else on.bit("created", parent, name)
                written |= at | on.bit("created", parent)
            case fx.Set(path):
                written |= on.bit("node", path)
            case fx.Delete(path):
                written |= on.bit("node", path) | on.bit("deleted", parent)
    return written


# fmt: off
ROWS = (
    Row(fx.Get, text=lambda e, r: ("get", path_text(e.path, r)), shown=True,
        performs=None, ends=branches.read, footprint=COORDINATION, joins="by rule", takes="request", asked=False,
        touches=Touches((), (), "unseen", paths=lambda e, _: ((e.path,), ())),
        probe=lambda seen: seen.effect.path.startswith(f"{layout.log(TABLE)}/") and "gap looked at again"),
    Row(fx.GetMany, text=lambda e, r: ("get", paths_text(e.paths, r)), shown=True,
        performs=None, ends=branches.read, footprint=COORDINATION, joins="by rule", takes="request", asked=False,
        touches=Touches((), (), "unseen", paths=lambda e, _: ((*e.paths, *(() if e.watch is None else (e.watch,))), ())),
        probe=None),
    Row(fx.Exists, text=lambda e, r: ("watch" if e.watch else "exists", path_text(e.path, r)), shown=True,
        performs=None, ends=branches.read, footprint=COORDINATION, joins="by rule", takes="request", asked=False,
        touches=Touches((), (), "unseen", paths=lambda e, _: ((e.path,), ())), probe=None),
    Row(fx.Children, text=lambda e, r: ("list", path_text(e.path, r)), shown=True,
        performs=None, ends=branches.read, footprint=COORDINATION, joins="by rule", takes="request", asked=False,
        touches=Touches((), (), "unseen", paths=lambda e, _: ((), (e.path,))), probe=None),
    Row(fx.ChildrenMany, text=None, shown=True,
        performs=None, ends=branches.read, footprint=COORDINATION, joins="never", takes="request", asked=False,
        touches=None, probe=None),
    Row(fx.NextNumber, text=lambda e, r: ("count", path_text(e.path, r)), shown=True,
        performs=None, ends=branches.read, footprint=COORDINATION, joins="never", takes="request", asked=False,
        touches=Touches((), (), "unseen", paths=lambda e, _: ((), (e.path,))), probe=None),
    Row(fx.Sync, text=lambda _e, _r: ("sync", ""), shown=True,
        performs=None, ends=branches.read, footprint=MEMORY, joins="by rule", takes="request", asked=False,
        touches=Touches((), (), "unseen"), probe=None),
    Row(fx.Commit, text=lambda e, r: ("commit", commit_text(e.operations, r)), shown=True,
        performs=None, ends=branches.commit, footprint=COORDINATION, joins="never", takes="request", asked=False,
        # A sequential name is not known before: any child of its folder stands for it, and `#` is in no name.
        touches=Touches(("epoch", "session"), (), "seen", leaves=_written, paths=lambda e, _: (tuple(dict.fromkeys(
            f"{each.path}#" if isinstance(each, fx.Create) and each.sequential else each.path for each in e.operations)), ())),
        probe=probes_of_commit),
    Row(RepairCommit, text=lambda e, r: ("repair", commit_text(e.operations, r)), shown=True,
        performs=None, ends=branches.commit, footprint=EVERYTHING, joins="never", takes="request", asked=False,
        touches=None, probe=None),
    Row(ListAges, text=lambda e, r: ("list", f"{path_text(e.path, r)}, with ages"), shown=True,
        performs=None, ends=branches.read, footprint=COORDINATION, joins="never", takes="request", asked=False,
        touches=None, probe=None),
    Row(fx.ProbeOwner, text=lambda e, _: ("probe", f"owner {e.value.decode()}"), shown=True,
        performs=None, ends=branches.probe_owner, footprint=MEMORIES, joins="alone", takes="no time", asked=False,
        touches=Touches((), (), "seen",
                        looks=lambda on, _e, _d: union(on.bit("memory", seat, "state") for seat in range(len(on.disk_of)))),
        probe=lambda seen: seen.outcome is fx.Owner.DEAD and "dead owner replaced"),
)
# fmt: on
