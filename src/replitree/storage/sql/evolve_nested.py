"""Evolve nested columns: fields inside structs are added, dropped and renamed, and what is inside any column is widened.

What a change inside a column may do, and why nothing more:

==============  ============================================================================================================
add field       to a struct, at the end, first or after another; rows that are there have null, for there is no default inside
drop field      of a struct that keeps another one: Parquet can't hold an empty struct
rename field    of a struct; data files keep the old name
widen           a plain type, as of a column (`replitree.storage.schema.widen`): of a field, of what is in a list or a map
==============  ============================================================================================================

Nothing is added to or dropped from a map's key: two keys that differ could become equal.

Guarantees: each function gives the column with the change made in both of its types, the shown one and the stored one
(`replitree.storage.schema.nested`), or raises; a field gets a stored name that no field had in its place before.

Absent on purpose: which column, and the history of the columns (`replitree.storage.sql.evolve`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from replitree.errors import BadInput
from replitree.storage.schema.columns import Column
from replitree.storage.schema.definition_checks import NAME_CHARACTERS_MAX, check_column_name
from replitree.storage.schema.nested import KEY, child_place, children, field_inside, with_children
from replitree.storage.schema.types import format_type, is_nested, parse_type
from replitree.storage.schema.widen import can_widen


@dataclass(frozen=True, slots=True)
class _Forms:
    """A type as readers see it, and as data files have it; both of one shape."""

    shown: pa.DataType
    stored: pa.DataType

    def inside(self, place: int) -> _Forms:
        """Give the type of the field at a position."""
        return _Forms(children(self.shown)[place].type, children(self.stored)[place].type)

    def with_inside(self, place: int, inner: _Forms) -> _Forms:
        """Put another type in the place of a field's."""
        fields = [list(children(arrow)) for arrow in (self.shown, self.stored)]
        for each, arrow in zip(fields, (inner.shown, inner.stored), strict=True):
            each[place] = each[place].with_type(arrow)
        return self.with_fields(*fields)

    def with_fields(self, shown: Sequence[pa.Field], stored: Sequence[pa.Field]) -> _Forms:
        """Put other fields in the place of all."""
        return _Forms(with_children(self.shown, shown), with_children(self.stored, stored))


_Change: TypeAlias = Callable[[_Forms], _Forms]


class _ColumnPath:
    """A path inside a column, for errors and for changes."""

    def __init__(self, column: Column, path: Sequence[str]) -> None:
        self.column = column
        self.path = tuple(path)
        self.name = ".".join((column.name, *path))

    def change(self, change: _Change, depth: int) -> Column:
        """Return the column after a change of the type that so many names of the path lead to."""
        column = self.column
        forms = _Forms(column.arrow_type, parse_type(column.stored_type))
        changed = self._changed(forms, self.path[:depth], change)
        return column.typed(format_type(changed.shown), format_type(changed.stored))

    def _changed(self, forms: _Forms, names: Sequence[str], change: _Change) -> _Forms:
        if not names:
            return change(forms)
        place = self.place(forms.shown, names[0])
        return forms.with_inside(place, self._changed(forms.inside(place), names[1:], change))

    def place(self, arrow: pa.DataType, name: str) -> int:
        """Find a field by its name."""
        place = child_place(arrow, name)
        if place is None:
            known = ", ".join(field.name for field in children(arrow)[:20])
            raise BadInput(
                f"there is no {self.name!r}: nothing is called {name!r} in a {format_type(arrow)}"
                + (f"; there is {known}" if known else "")
            )
        return place

    def check_struct(self, arrow: pa.DataType, verb: str) -> None:
        """Refuse to add, drop or rename what is no field of a struct."""
        if not pa.types.is_struct(arrow):
            raise BadInput(
                f"{self.name!r} can't be {verb}: only fields of structs can, and it would be in a {format_type(arrow)}"
            )

    def check_key(self, verb: str) -> None:
        """Refuse to change the number of fields of a map's key."""
        arrow = self.column.arrow_type
        for name in self.path[:-1]:
            place = self.place(arrow, name)
            field = children(arrow)[place]
            if pa.types.is_map(arrow) and field.name == KEY:
                raise BadInput(f"{self.name!r} can't be {verb}: keys of a map that differ could become equal")
            arrow = field.type


def add_inside(
    column: Column, path: Sequence[str], type_text: str, *, after: str | None, first: bool, ever: Iterable[Column]
) -> Column:
    """Add a field to a struct.

    Parameters
    ----------
    path
        Of the new field, from the column inwards.
    type_text
        Its type.
    after, first
        Its place among the fields of the struct; the last by default.
    ever
        The column in all the forms that it had; the stored name is none that was there.

    Raises
    ------
    BadInput
        There is no such struct, or it has the field already.
    """
    place, added = _ColumnPath(column, path), parse_type(type_text)
    check_column_name(path[-1])
    place.check_key("added")
    parent, shown, stored = list[str](), column.arrow_type, parse_type(column.stored_type)
    for name in place.path[:-1]:
        number = place.place(shown, name)
        parent.append(children(stored)[number].name)
        shown, stored = children(shown)[number].type, children(stored)[number].type
    parents = (field_inside(parse_type(form.stored_type), parent) for form in (column, *ever))
    # A field that was dropped is still in old files: another one under its stored name would show its values.
    used = frozenset(field.name.lower() for arrow in parents if arrow is not None for field in children(arrow))

    def change(forms: _Forms) -> _Forms:
        place.check_struct(forms.shown, "added")
        if child_place(forms.shown, path[-1]) is not None:
            raise BadInput(f"there is a {place.name!r} already")
        at = 0 if first else len(children(forms.shown))
        if after is not None:
            at = place.place(forms.shown, after) + 1
        shown, stored = list(children(forms.shown)), list(children(forms.stored))
        shown.insert(at, pa.field(path[-1], added))
        stored.insert(at, pa.field(free_name(path[-1], used), added))
        return forms.with_fields(shown, stored)

    return place.change(change, len(path) - 1)


def free_name(name: str, used: Iterable[str]) -> str:
    """Give a name, or one that begins with it, that is not among those used, which are in lower case.

    >>> free_name("a", {"a", "a~2"})
    'a~3'
    """
    taken = frozenset(used)
    free, number = name, 1
    while free.lower() in taken:
        number += 1
        free = f"{name[: NAME_CHARACTERS_MAX - 1 - len(str(number))]}~{number}"
    return free


def drop_inside(column: Column, path: Sequence[str]) -> Column:
    """Drop a field of a struct.

    Raises
    ------
    BadInput
        There is none, or it is the last one.
    """
    place = _ColumnPath(column, path)
    place.check_key("dropped")

    def change(forms: _Forms) -> _Forms:
        place.check_struct(forms.shown, "dropped")
        at = place.place(forms.shown, path[-1])
        shown, stored = list(children(forms.shown)), list(children(forms.stored))
        if len(shown) == 1:
            raise BadInput(f"{place.name!r} can't be dropped: a struct has at least one field; drop the struct")
        return forms.with_fields([*shown[:at], *shown[at + 1 :]], [*stored[:at], *stored[at + 1 :]])

    return place.change(change, len(path) - 1)


def rename_inside(column: Column, path: Sequence[str], to: str) -> Column:
    """Give a field of a struct another name; data files keep the old one.

    Raises
    ------
    BadInput
        There is none, or the name is taken.
    """
    place = _ColumnPath(column, path)
    check_column_name(to)

    def change(forms: _Forms) -> _Forms:
        place.check_struct(forms.shown, "renamed")
        at = place.place(forms.shown, path[-1])
        shown = list(children(forms.shown))
        if shown[at].name == to:
            raise BadInput(f"{place.name!r} has this name already")
        # `at` itself: a change of the case alone.
        if child_place(forms.shown, to) not in (None, at):
            raise BadInput(f"{place.name!r} can't be called {to!r}: there is another one")
        shown[at] = shown[at].with_name(to)
        return forms.with_fields(shown, children(forms.stored))

    return place.change(change, len(path) - 1)


def widen_inside(column: Column, path: Sequence[str], type_text: str) -> Column:
    """Give what is at a path a type that holds all values of its type.

    Raises
    ------
    BadInput
        There is nothing, or the type does not hold them.
    """
    place, target = _ColumnPath(column, path), parse_type(type_text)

    def change(forms: _Forms) -> _Forms:
        if forms.shown == target:
            raise BadInput(f"{place.name!r} is {format_type(target)} already")
        if not can_widen(forms.shown, target):
            found = format_type(forms.shown)
            hint = "add a field of that type, and drop this one"
            if is_nested(forms.shown):
                hint = f"name what is inside, as in {place.name}.{children(forms.shown)[0].name}"
            raise BadInput(f"{place.name!r} can't become {format_type(target)}: not every {found} is one; {hint}")
        return _Forms(target, target)

    return place.change(change, len(path))
