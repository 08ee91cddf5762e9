"""The search in plain Python: breadth first with a dictionary.  What the compiled one finds is compared with this.

States are numbered in the order in which they are found.  So the first violation is at the end of a shortest way, and which
one it is depends on nothing but the model.
"""

from __future__ import annotations

from replitree_published.packed.model import DROPPED, Limits, PackedModel
from replitree_published.packed.raw import NOBODY, Raw


def search_plainly(model: PackedModel, limits: Limits, wanted: int, *, symmetric: bool, states_max: int) -> Raw:
    """Search a model's states; parameters as of `search.search`, `wanted` being bits of invariants."""
    start = model.initial(limits)
    raw = Raw(model, [start], [NOBODY])
    raw.judge(0, model.broken(start, limits) & wanted, model.seen(start, limits), 1)
    numbers, at = {start: 0}, 0
    out, by = [0] * model.fan_out, [0] * model.fan_out
    while at < len(raw.states) < states_max and raw.violating is None:
        raw.depth += 1
        for number in range(at, len(raw.states)):
            count = model.successors(raw.states[number], limits, out, by, 0)
            raw.count(number, by[:count])
            for state in out[:count]:
                raw.generated += 1
                state = model.canonical(state, limits) if symmetric and state != DROPPED else state  # noqa: PLW2901
                if state == DROPPED or state in numbers:
                    continue
                numbers[state] = len(raw.states)
                raw.states.append(state)
                raw.parents.append(number)
                bad = model.broken(state, limits) & wanted
                raw.judge(numbers[state], bad, model.seen(state, limits), raw.depth + 1)
                if bad:
                    return raw
        at = number + 1
    raw.cut_short = at < len(raw.states)
    return raw
