"""Effects of tags, and of the removal of old parts."""

from __future__ import annotations

from replitree.protocol.program import tagger
from replitree_verify.effects.row import EVERYTHING, MEMORY, Row
from replitree_verify.outcomes import tags

# fmt: off
ROWS = (
    Row(tagger.AwaitOld, text=lambda _e, _r: ("wakes", "old parts may go"), shown=True,
        performs=tags.await_old, ends=None, footprint=EVERYTHING, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
    Row(tagger.RemoveOld, text=lambda e, _: ("delete", f"of {', '.join(e.parts)} what nothing keeps"), shown=True,
        performs=tags.remove_old, ends=None, footprint=EVERYTHING, joins="never", takes="disk", asked=False,
        touches=None,
        probe=tags.became_of_old_parts),
    Row(tagger.TakeVersion, shown=True,
        text=lambda e, _: ("keep", "the parts of this version" if e.index is None else f"version {e.index}"),
        performs=tags.take_version, ends=None, footprint=EVERYTHING, joins="never", takes="no time", asked=True,
        touches=None, probe=None),
    Row(tagger.AwaitNaming, text=lambda _e, _r: ("wakes", "a name is to be changed"), shown=True,
        performs=tags.await_tagging, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=True,
        touches=None, probe=None),
    Row(tagger.ReleaseVersion, text=lambda _e, _r: ("release", "the version's parts"), shown=True,
        performs=tags.release_version, ends=None, footprint=MEMORY, joins="never", takes="no time", asked=False,
        touches=None, probe=None),
)
# fmt: on
