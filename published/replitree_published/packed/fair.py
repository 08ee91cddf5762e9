"""What is eventually so, under strong fairness: no fair behaviour stays away from it for ever.

A behaviour that goes on for ever ends in a strongly connected set of states, and any state may be repeated for ever.  Such
a set is fair when every fair action that changes something somewhere in it is also taken inside.  If one is not, a fair way
leaves out the states where that action could be taken; what is left falls into smaller sets, which are looked at in turn.

For models of some ten thousand states: plain Python, with all edges in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from replitree_published.packed.model import Eventually, Limits, PackedModel

Edges = list[list[tuple[int, int]]]
"""Of each state: action and number of the state that it leads to, where that is another one."""


def first_state_fails(model: PackedModel, limits: Limits, claim: Eventually) -> bool:
    """Tell whether a property says more than that the first state has it."""
    return claim.forever or not claim.holds(model.initial(limits), limits)


def unfair_end(model: PackedModel, limits: Limits, claim: Eventually, states: Collection[int]) -> int | None:
    """Return the number of the first state where a fair behaviour can stay away from what is claimed, None if none can."""
    numbers = {state: number for number, state in enumerate(states)}
    holds = [claim.holds(state, limits) for state in states]
    edges = _edges(model, limits, numbers)
    away = set(range(len(numbers)) if claim.forever else _reached(edges, holds))
    fair = [number for number, name in enumerate(model.actions) if name in claim.fair]
    ends = [number for part in _fair_sets(edges, away, fair) for number in part if not holds[number]]
    return min(ends, default=None)


def _edges(model: PackedModel, limits: Limits, numbers: dict[int, int]) -> Edges:
    out, by, edges = [0] * model.fan_out, [0] * model.fan_out, []
    for state, number in numbers.items():
        count = model.successors(state, limits, out, by, 0)
        made = {(by[each] >> 8, numbers[out[each]]) for each in range(count) if out[each] in numbers}
        edges.append(sorted((action, target) for action, target in made if target != number))
    return edges


def _reached(edges: Edges, holds: list[bool]) -> set[int]:
    """Return the states to which a way leads on which the property never held."""
    found = set() if holds[0] else {0}
    todo = list(found)
    while todo:
        new = {target for _, target in edges[todo.pop()] if not holds[target]} - found
        found |= new
        todo += new
    return found


def _fair_sets(edges: Edges, within: set[int], fair: Iterable[int]) -> Iterator[set[int]]:
    """Return the strongly connected sets in which a fair behaviour can stay."""
    todo = [within]
    while todo:
        for part in _components(edges, todo.pop()):
            for action in fair:
                enabled = {number for number in part if any(by == action for by, _ in edges[number])}
                taken = any(by == action and target in part for number in enabled for by, target in edges[number])
                if enabled and not taken:
                    todo.append(part - enabled)
                    break
            else:
                yield part


def _components(edges: Edges, within: set[int]) -> Iterator[set[int]]:
    """Return the strongly connected sets of a part of the graph (Tarjan, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    open_, is_open = [], set()
    for root in sorted(within):
        if root in order:
            continue
        way = [(root, iter([target for _, target in edges[root] if target in within]))]
        order[root] = low[root] = len(order)
        open_.append(root)
        is_open.add(root)
        while way:
            number, targets = way[-1]
            target = next(targets, None)
            if target is None:
                way.pop()
                if way:
                    low[way[-1][0]] = min(low[way[-1][0]], low[number])
                if low[number] == order[number]:
                    part = set(open_[open_.index(number) :])
                    del open_[-len(part) :]
                    is_open -= part
                    yield part
            elif target not in order:
                order[target] = low[target] = len(order)
                open_.append(target)
                is_open.add(target)
                way.append((target, iter([after for _, after in edges[target] if after in within])))
            elif target in is_open:
                low[number] = min(low[number], order[target])
