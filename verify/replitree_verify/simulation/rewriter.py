"""A client that rewrites parts: it makes others of what some replica shows, and brings them a while later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from replitree.protocol.core.effects import EntryId
from replitree.protocol.core.entries import EVERY_PARTITION, Unchanged
from replitree.protocol.propose.rewrite import Rewriting
from replitree_verify.simulation.cluster import Cluster
from replitree_verify.simulation.observer import Observer
from replitree_verify.simulation.options import SECOND
from replitree_verify.simulation.process import Process
from replitree_verify.world.disk import content_of, rows_in
from replitree_verify.world.model import Rewrite


@dataclass(frozen=True, slots=True)
class Rewriter:
    """The client.

    Attributes
    ----------
    random
        Where its choices come from.
    cluster, observer, processes
        The run.
    new_request
        Returns the number of a new request.
    """

    random: Random
    cluster: Cluster
    observer: Observer
    processes: Mapping[str, Process]
    new_request: Callable[[], int]

    def make(self) -> None:
        """Rewrite one or two parts that some replica shows."""
        random, process = self.random, self.processes[self.random.choice(sorted(self.processes))]
        place, disk = process.memory.place, self.observer.disks[process.name]
        if not process.is_active or place is None or process.memory.torn:
            return
        # What is shown: a result that is on the disk and not registered yet may still be thrown away for another content.
        shown = (part for part in process.memory.visible if part in place.parts)
        known = {part: content for part in shown if (content := disk.content(part.name)) is not None}
        sources = sorted(random.sample(sorted(known), min(len(known), random.randint(1, 2))))
        if not sources:
            return
        request = self.new_request()
        rows = {part: [f"{row}~w{request}" for row in rows_in(known[part])] for part in sources}
        # Of two sources the second one loses its rows to a new part.
        moved = rows.pop(sources[1]) if len(sources) > 1 else []
        results = tuple((part.name, content_of(part.partition, rows.get(part, []))) for part in sources)
        new = ((sources[-1].partition, content_of(sources[-1].partition, [*moved, str(request)])),)
        relied = Unchanged((EVERY_PARTITION,), place.pointer.index, place.open) if random.random() < 0.5 else None
        rewrite = Rewrite(process.name, request, EntryId(f"w{request}"), results, new, relied)
        self.cluster.after(random.randrange(SECOND), lambda: self._bring(rewrite))

    def _bring(self, rewrite: Rewrite) -> None:
        process = self.processes[rewrite.seat]
        if process.is_active:
            self.observer.seen("rewrite asked")
            self.observer.rewriting(rewrite)
            process.rewrite(rewrite.request, Rewriting(rewrite.id, unchanged=rewrite.unchanged))
