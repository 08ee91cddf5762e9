"""Steps on a disk that no invariant sees, or only together with something that can be named (`ample`).

*Staging rows* under an id that no entry of the log names, of requests that no entry has: no invariant looks at them before
their own commit.

*Publishing an insert of one's own*: its rows are on the disk before and after it, so an invariant that asks for rows (I2,
QUORUM, KEPT) sees no difference.  Only FILES and SIGHT ask for the published part: whether this replica registers and shows it.
So what they look at is said to be read; a state in which they do not hold is found before the step is taken, since the states
in between are checked too.

Neither is hidden where files break, and a death before the step is not as one after it: what is on a disk lasts.
"""

from __future__ import annotations

from replitree.coordination.tree import Tree
from replitree.protocol.core import layout
from replitree.protocol.core.effects import Publish, Published, Stage
from replitree.protocol.core.parts import inserted_part
from replitree_verify.engine.resources import EVERYTHING, Resources
from replitree_verify.engine.steps import Turn
from replitree_verify.world.disk import requests_in
from replitree_verify.world.history import Log
from replitree_verify.world.model import Model


class Hidden:
    """Says what invariants see of steps on disks.

    Parameters
    ----------
    model, resources
        What is explored, and its resources.
    """

    def __init__(self, model: Model, resources: Resources) -> None:
        self._model = model
        self._resources = resources

    def looked_at(self, turn: Turn, seat: int, tree: Tree) -> int:
        """Return what the invariants look at that see a step; `EVERYTHING`: it is not hidden."""
        inserts, replica = Log(tree).inserts, self._model.replica(self._model.seats[seat][1])
        match turn.effect, turn.outcome:
            case Stage(staging, requests), _ if not self._model.fragile:
                known = {
                    each for _, entry in inserts for part in entry.parts for each in requests_in(part.content_hash)
                }
                is_new = known.isdisjoint(requests) and all(entry.insert != staging for _, entry in inserts)
                return 0 if is_new else EVERYTHING
            case Publish(staging, names), Published(()) if not self._model.fragile:
                found = [(index, entry) for index, entry in inserts if entry.insert == staging]
                # Its own insert, under the names that the log gives: any other publish may be what an invariant is to see.
                if len(found) == 1 and found[0][1].replica == replica.name:
                    index, entry = found[0]
                    own = {part.partition: inserted_part(part.partition, index).name for part in entry.parts}
                    if dict(names) == own:
                        return self._of_parts(tuple(own.values()), seat, replica)
        return EVERYTHING

    def _of_parts(self, names: tuple[str, ...], seat: int, replica: layout.Replica) -> int:
        """Return what says whether parts are registered and shown."""
        resources, folder, looked_at = self._resources, layout.parts(replica), 0
        for other, (_, name) in enumerate(self._model.seats):
            if name == self._model.seats[seat][1]:
                looked_at |= resources.fields(other, ("held",))
        for name in names:
            looked_at |= resources.bit("node", f"{folder}/{name}") | resources.bit("created", folder, name)
        return looked_at
