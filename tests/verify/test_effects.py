"""The table of effects: each type that a procedure may yield has one row, and every column of it is decided."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import get_args

import replitree.protocol
import replitree_verify
import replitree_verify.cuts.space
import replitree_verify.joint.space
import replitree_verify.joint.stages
import replitree_verify.moves.space
import replitree_verify.tags.space
import replitree_verify.viewed.space
from replitree.protocol.core.effects import Effect
from replitree_verify.effects import row
from replitree_verify.effects.row import Joins, Row, Sight, Takes
from replitree_verify.effects.table import ROWS

NOT_EXPLORED = {"AbortUpload", "DeleteTrial", "FetchPart", "HaveChecked", "ListDetached"}
"""Effects that no stage of a model asks for, by name; the row of each says why.  The set only shrinks."""

OF_SHARDS = (
    "replitree.protocol.core.stamps",
    "replitree.protocol.program.sharded.",
    "replitree.protocol.sharded.",
    "replitree.protocol.upkeep.named_cuts",
)
"""Where the effects are that only sharded tables need: rooms with a search of their own perform them, and no world does."""


def effects(base: type = Effect) -> Iterator[type]:
    """Yield the types of effects that are defined in modules that were imported; a base class of several is none."""
    each: type
    for each in base.__subclasses__():
        # `dataclass(slots=True)` makes a second class; the first one stays among the subclasses, under no name.
        if "__dataclass_fields__" in vars(each) and getattr(sys.modules[each.__module__], each.__name__, None) is each:
            yield each
        yield from effects(each)


def import_all(package: ModuleType) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


def test_every_effect_of_the_protocol_and_of_the_checker_has_one_row() -> None:
    import_all(replitree.protocol)
    import_all(replitree_verify)
    everywhere = ("replitree.protocol.", "replitree_verify.")
    asked = {
        each
        for each in effects()
        if each.__module__.startswith(everywhere) and not each.__module__.startswith(OF_SHARDS)
    }
    rows = [each.effect for each in ROWS]
    assert len(rows) == len(set(rows)), "an effect has two rows"
    assert set(rows) == asked


def test_every_effect_of_sharded_tables_is_performed_by_a_room_of_its_own() -> None:
    import_all(replitree.protocol)
    rooms = (
        replitree_verify.cuts.space,
        replitree_verify.joint.space,
        replitree_verify.joint.stages,
        replitree_verify.moves.space,
        replitree_verify.tags.space,
        replitree_verify.viewed.space,
    )
    named = {value for room in rooms for value in vars(room).values() if isinstance(value, type)}
    asked = {each for each in effects() if each.__module__.startswith(OF_SHARDS)}
    assert {each.__name__ for each in asked - named} == set()
    assert len(asked) > 5


def test_every_column_is_decided() -> None:
    assert Row._field_defaults == {}
    for each in ROWS:
        assert each.footprint in range(row.STORED + 1)
        assert each.joins in get_args(Joins)
        assert each.takes in get_args(Takes)
        assert each.touches is None or each.touches.sight in get_args(Sight)


def test_every_effect_that_a_model_asks_for_can_end() -> None:
    assert {each.effect.__name__ for each in ROWS if each.performs is None and each.ends is None} == NOT_EXPLORED
