"""Effects on parts: on the disk of a replica, and on what it shows of them."""

from __future__ import annotations

from typing import Any

from replitree.protocol.core import effects as fx
from replitree_verify.effects.numbers import Numbers, union
from replitree_verify.effects.row import DISK, DISKS, MEMORY, Row, Touches
from replitree_verify.outcomes import branches, local
from replitree_verify.outcomes.local import Done
from replitree_verify.probes.catalog import probes_of_fetch, probes_of_making, probes_of_publishing, probes_of_stage

_HELD = ("staging",)


def _folders(on: Numbers, _effect: Any, disk: int) -> int:
    return on.bit("folders", disk)


def _source(on: Numbers, effect: fx.Mutate | fx.Link, disk: int) -> int:
    return on.parts(disk, (effect.source,))


# fmt: off
ROWS = (
    Row(fx.Stage, text=lambda e, _: ("stage", f"{e.staging}: rows of {', '.join(map(str, e.requests))}"), shown=True,
        performs=local.stage, ends=branches.stage, footprint=DISK, joins="by rule", takes="disk", asked=False,
        touches=Touches((), (), "on disk", leaves=_folders), probe=probes_of_stage),
    Row(fx.Publish, text=lambda e, _: ("publish", f"{e.staging} as {', '.join(name for _, name in e.names)}"), shown=True,
        performs=local.publish, ends=branches.publish, footprint=DISK, joins="never", takes="disk", asked=False,
        touches=Touches(
            _HELD, _HELD, "on disk",
            looks=lambda on, e, disk: on.bit("folders", disk) | on.parts(disk, (name for _, name in e.names)),
            leaves=lambda on, e, disk: on.bit("folders", disk) | on.listed_parts(disk, (name for _, name in e.names))),
        probe=probes_of_publishing),
    # No procedure fetches one part by itself.
    Row(fx.FetchPart, text=None, shown=True,
        performs=None, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False, touches=None, probe=None),
    Row(fx.FetchMany, shown=True,
        text=lambda e, _: ("fetch", "; ".join(f"{f.part} from {', '.join(f.sources) or 'no replica'}" for f in e.fetches)),
        performs=local.fetch_many, ends=branches.fetch_many, footprint=DISKS, joins="never", takes="disk", asked=False,
        touches=Touches((), (), "seen", looks=lambda on, e, _: union(on.part_everywhere(fetch.part) for fetch in e.fetches),
                        leaves=lambda on, e, disk: on.listed_parts(disk, (fetch.part for fetch in e.fetches))),
        probe=probes_of_fetch),
    Row(fx.Merge, text=lambda e, _: ("merge", f"{', '.join(e.sources)} into {e.result}"), shown=True,
        performs=local.make, ends=branches.make, footprint=DISK, joins="never", takes="disk", asked=False,
        touches=Touches(("staging", "place"), _HELD, "seen", looks=lambda on, e, disk: on.parts(disk, e.sources),
                        leaves=_folders),
        probe=probes_of_making),
    Row(fx.Mutate, text=lambda e, _: ("mutate", f"{e.source} by {e.command} into {e.result}"), shown=True,
        performs=local.make, ends=branches.make, footprint=DISK, joins="never", takes="disk", asked=False,
        touches=Touches(("staging", "place"), _HELD, "seen", looks=_source, leaves=_folders), probe=probes_of_making),
    Row(fx.Link, text=lambda e, _: ("link", f"{e.source} as {e.result}"), shown=True,
        performs=local.make, ends=None, footprint=DISK, joins="never", takes="disk", asked=False,
        touches=Touches(_HELD, _HELD, "seen", looks=_source, leaves=_folders), probe=probes_of_making),
    Row(fx.MakeEmpty, text=lambda e, _: ("make", f"{e.result} without rows"), shown=True,
        performs=local.make, ends=None, footprint=DISK, joins="never", takes="disk", asked=False,
        touches=Touches(_HELD, _HELD, "seen", leaves=_folders), probe=lambda _: "made empty"),
    Row(fx.Untouched, text=None, shown=True,
        performs=local.untouched, ends=None, footprint=DISK, joins="never", takes="known", asked=False,
        touches=None, probe=None),
    Row(fx.ResultsInWork, text=None, shown=True,
        performs=local.share, ends=None, footprint=MEMORY, joins="never", takes="known", asked=False,
        touches=None, probe=None),
    Row(fx.Detach, text=lambda e, _: ("detach", ", ".join(e.parts)), shown=True,
        performs=lambda e, here: Done(None, here.memory, here.disk.keeping_aside(e.parts)), ends=branches.detach,
        footprint=DISK, joins="never", takes="disk", asked=False,
        touches=None, probe=lambda seen: seen.outcome is None and seen.disk_changed and "parts kept aside"),
    # A reveal of nothing has no line either (`trace.line_of`).
    Row(fx.Reveal, shown=True,
        text=lambda e, _: ("reveal", (", ".join(e.parts) or "nothing") + f" instead of {', '.join(e.gone)}" * bool(e.gone)),
        performs=local.reveal, ends=None, footprint=DISK, joins="never", takes="no time", asked=False,
        touches=Touches(("held", "lacking"), ("held", "lacking", "loading"), "seen",
                        leaves=lambda on, e, disk: on.listed_parts(disk, e.gone)),
        probe=None),
    Row(fx.ListStaging, text=lambda _e, _r: ("list", "staging on disk"), shown=True,
        performs=local.list_staging, ends=None, footprint=DISK, joins="alone", takes="disk", asked=False,
        touches=Touches(_HELD, (), "unseen", looks=_folders), probe=None),
    Row(fx.RemoveStaging, text=lambda e, _: ("sweep", e.staging), shown=True,
        performs=lambda e, here: Done(None, local.let_go(here.memory, e.staging), here.disk.without_folder(e.staging)),
        ends=None, footprint=DISK, joins="never", takes="disk", asked=False,
        touches=Touches(_HELD, _HELD, "seen", leaves=_folders), probe=lambda _: "staging removed"),
    # `tidy_up` has swept what no log entry names; what is left of the idle staging was committed.
    Row(fx.ListParts, text=lambda _e, _r: ("list", "parts on disk"), shown=True,
        performs=local.list_parts, ends=None,
        footprint=DISK, joins="alone", takes="disk", asked=False,
        touches=Touches((), (), "unseen", looks=lambda on, _e, disk: on.bit("parts", disk)),
        probe=lambda seen: (seen.stage == "tidy_up" and len(seen.told.arguments[-1]) > len(seen.earlier(fx.RemoveStaging))
                            and "committed staging kept")),
    Row(fx.FindPart, text=lambda e, _: ("find", e.part), shown=True,
        performs=local.find, ends=None,
        footprint=DISK, joins="always", takes="disk", asked=False,
        touches=Touches((), (), "unseen", looks=lambda on, e, disk: on.parts(disk, (e.part,))),
        probe=lambda seen: seen.outcome is not None and "result found"),
    Row(fx.RemovePart, text=lambda e, _: ("set aside", e.part), shown=True,
        performs=local.set_aside, ends=None,
        footprint=DISK, joins="never", takes="disk", asked=False,
        touches=Touches((), (), "seen", leaves=lambda on, e, disk: on.listed_parts(disk, (e.part,))),
        probe=lambda seen: "other content thrown away" if seen.stage == "make_next" else "unknown part set aside"),
    Row(fx.Discard, text=None, shown=True,
        performs=local.share, ends=None, footprint=DISK, joins="never", takes="disk", asked=False, touches=None, probe=None),
)
# fmt: on
