"""What a packed model is: limits, actions, invariants, probes, and three functions that can be compiled.

`successors(state, limits, out, by, at)` writes every successor into `out` from position `at` on, and beside it into `by` which
action made it (`label`); it returns the position after the last one.  One copy is written for each witness: that is how other
checkers count.  `DROPPED` stands for a successor outside the model's bound: it is counted, and goes no further.

`broken(state, limits)` returns the invariants that don't hold, `seen(state, limits)` the probes that do, as bits in the order
in which the model names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence
from dataclasses import dataclass
from typing import Any

from replitree.errors import BadInput
from replitree_published.packed.bits import sorted_blocks

Words = MutableSequence[int]
Limits = Any
"""A named tuple of integers, one class for each model: its constants, and the number of a mutant (0: none)."""

DROPPED = -1

NEVER_NONE = ("replicas", "records", "sessions")
"""Limits that are at least 1."""


def label(action: int, first: int, second: int) -> int:
    """Return an action and its witnesses as one number."""
    return (action << 8) | (first << 4) | second


def numbers(mask: int) -> str:
    """Say a mask as a set of numbers."""
    return "{" + ",".join(str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1) + "}"


@dataclass(frozen=True, slots=True)
class Invariant:
    """What holds in every state.

    Attributes
    ----------
    name, what
        Its name, and what it says.
    needs
        The probe that must be seen for it to say anything: its antecedent; "" if it has none.
    """

    name: str
    what: str
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Eventually:
    """A state that every fair behaviour comes to, or (`forever`) comes to and stays in.

    Attributes
    ----------
    name
        Its name.
    holds
        Tells it of one state.
    fair
        Actions under strong fairness: who can be taken again and again is taken again and again.
    """

    name: str
    holds: Callable[[int, Limits], bool]
    fair: tuple[str, ...]
    forever: bool = False


@dataclass(frozen=True, slots=True)
class PackedMutant:
    """A change of the model, or a sharper question, after which a violation must be found.

    Attributes
    ----------
    name, invariant, steps
        Its name, what catches it, and the number of states of the shortest way there (0 where a way is not counted).
    settings
        Limits that it changes.
    asked
        The invariants that are checked; those of the model by default.
    """

    name: str
    invariant: str
    steps: int
    settings: Mapping[str, int]
    asked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PackedModel:
    """One packed model.

    Attributes
    ----------
    limits, most
        Its constants as they are by default, and the largest that fit into the word.
    actions, invariants, probes
        In the order of their numbers.
    asked
        Names of the invariants and of what is eventually so that hold of the model as it is; the others are for mutants to ask.
    required
        Probes that must be seen: without them the model proves less than it is there for.
    never
        Actions that only mutants take.
    blocks
        Bits below the first replica's block, and of one block.
    describe
        Says a state in words.
    """

    name: str
    description: str
    limits: Limits
    most: Mapping[str, int]
    actions: tuple[str, ...]
    invariants: tuple[Invariant, ...]
    asked: tuple[str, ...]
    probes: tuple[str, ...]
    successors: Callable[[int, Limits, Words, Words, int], int]
    broken: Callable[[int, Limits], int]
    seen: Callable[[int, Limits], int]
    blocks: tuple[int, int]
    initial: Callable[[Limits], int]
    describe: Callable[[int, Limits], str]
    mutants: tuple[PackedMutant, ...] = ()
    eventually: tuple[Eventually, ...] = ()
    required: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    fan_out: int = 64

    def set_to(self, settings: Mapping[str, int]) -> Limits:
        """Return the limits with some of them changed.

        Raises
        ------
        BadInput
            There is no such limit, or the value does not fit into the state's word.
        """
        for name, value in settings.items():
            if name not in self.limits._fields:
                raise BadInput(f"model {self.name} has no limit {name!r}; it has {', '.join(self.limits._fields)}")
            least, most = int(name in NEVER_NONE), self.most.get(name, value)
            if not least <= value <= most:
                raise BadInput(f"model {self.name}: {name}={value} does not fit; use {least} to {most}")
        return self.limits._replace(**settings)

    def canonical(self, state: int, limits: Limits) -> int:
        """Return the state that stands for all that differ from this one by names of replicas only."""
        low, width = self.blocks
        return sorted_blocks(state, low, width, limits.replicas)

    def mask(self, names: tuple[str, ...]) -> int:
        """Return the bits of these invariants."""
        return sum(1 << number for number, each in enumerate(self.invariants) if each.name in names)

    def mutant(self, name: str) -> PackedMutant:
        """Return a mutant.

        Raises
        ------
        BadInput
            There is none of this name.
        """
        for mutant in self.mutants:
            if mutant.name == name:
                return mutant
        known = ", ".join(mutant.name for mutant in self.mutants)
        raise BadInput(f"model {self.name} has no mutant {name!r}; it has {known or 'none'}")
