"""Nested types: paths to the types inside lists, structs and maps, and values whose insides have other names or types.

A path is made of names from the outside in, as Spark and Iceberg have it: fields of structs by their names, whatever the case
of their letters, what is in a list as ``element``, what is in a map as ``key`` and ``value``.

A column whose fields were renamed, or dropped and added again, has two types of one shape: the *shown* one with the names that
readers see, and the *stored* one with the names in data files.  Stored names of fields are, like those of columns, never used
twice in one place, so they tell which field is meant: what a file lacks was added later and is null there.

Absent on purpose: which changes are allowed (`replitree.storage.sql.evolve_nested`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from replitree.storage.schema.types import LIST_ELEMENT, is_nested, list_of

KEY, VALUE = "key", "value"
"""Names of what is in a map."""


def children(arrow: pa.DataType) -> tuple[pa.Field, ...]:
    """Give the fields directly inside a type, under the names that paths have for them; none for a plain type."""
    kinds = pa.types
    if kinds.is_map(arrow):
        return pa.field(KEY, arrow.key_type, nullable=False), pa.field(VALUE, arrow.item_type)
    if kinds.is_list(arrow):
        return (pa.field(LIST_ELEMENT, arrow.value_type),)
    return tuple(arrow) if kinds.is_struct(arrow) else ()


def with_children(arrow: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """Give a type of the same kind with other fields inside; only structs take other names or another number."""
    if pa.types.is_struct(arrow):
        return pa.struct(fields)
    if pa.types.is_map(arrow):
        return pa.map_(fields[0].type, fields[1].type)
    return list_of(fields[0].type)


def child_place(arrow: pa.DataType, name: str) -> int | None:
    """Give the position of the field with a name, whatever the case of its letters, or None."""
    places = (place for place, field in enumerate(children(arrow)) if field.name.lower() == name.lower())
    return next(places, None)


def same_shape(one: pa.DataType, other: pa.DataType) -> bool:
    """Tell whether two types differ in nothing but the names of fields."""
    if not is_nested(one) or not is_nested(other):
        return bool(one == other)
    inner, outer = children(one), children(other)
    return (
        one.id == other.id
        and len(inner) == len(outer)
        and all(same_shape(a.type, b.type) for a, b in zip(inner, outer, strict=True))
    )


def field_inside(arrow: pa.DataType, names: Sequence[str]) -> pa.DataType | None:
    """Give the type at a path of exact names, or None where there is none."""
    for name in names:
        fields = {field.name: field.type for field in children(arrow)}
        if name not in fields:
            return None
        arrow = fields[name]
    return arrow


def stored_path(shown: pa.DataType, stored: pa.DataType, names: Sequence[str]) -> tuple[str, ...]:
    """Give a path of exact shown names in stored names."""
    found = []
    for name in names:
        place = [field.name for field in children(shown)].index(name)
        found.append(children(stored)[place].name)
        shown, stored = children(shown)[place].type, children(stored)[place].type
    return tuple(found)


# --- values -----------------------------------------------------------------------------------------------------------------


def reshape(values: pa.Array, stored: pa.DataType, shown: pa.DataType) -> pa.Array:
    """Give values that have a type of an older version, or of another naming, the shown type.

    Parameters
    ----------
    values
        Their type has stored names; fields that were added later are missing, those that were dropped are still there.
    stored, shown
        The two forms of the type that is wanted.

    Returns
    -------
    pa.Array
        As many values of the type `shown`; buffers that fit are shared.
    """
    if not is_nested(shown):
        return values if values.type == shown else values.cast(shown)
    return _RESHAPE[shown.id](values, stored, shown)


def _reshape_struct(values: pa.Array, stored: pa.DataType, shown: pa.DataType) -> pa.Array:
    arrays = []
    for known, field in zip(stored, shown, strict=True):
        # -1 also when a field stands twice; stored names are unique,
        # so here it means that the file is older than the field.
        place = values.type.get_field_index(known.name)
        if place < 0:
            arrays.append(pa.nulls(len(values), field.type))
        else:
            # `field`, not `flatten`: the struct's own nulls are given back by the mask below, and the slice is kept.
            arrays.append(reshape(values.field(place), known.type, field.type))
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(arrays, fields=list(shown), mask=mask)


def _reshape_map(values: pa.Array, stored: pa.DataType, shown: pa.DataType) -> pa.Array:
    keys = reshape(values.keys, stored.key_type, shown.key_type)
    items = reshape(values.items, stored.item_type, shown.item_type)
    return _around(values, shown, pa.StructArray.from_arrays([keys, items], fields=[shown.key_field, shown.item_field]))


def _around(values: pa.Array, shown: pa.DataType, inside: pa.Array) -> pa.Array:
    """Put other values inside lists or maps of the same lengths."""
    # Of the nulls and of the offsets only: both are taken as they are, with the slice's own offset.
    own = values.buffers()[:2]
    return pa.Array.from_buffers(shown, len(values), own, values.null_count, values.offset, [inside])


_RESHAPE: dict[int, Callable[[pa.Array, pa.DataType, pa.DataType], pa.Array]] = {
    pa.lib.Type_STRUCT: _reshape_struct,
    pa.lib.Type_LIST: lambda values, stored, shown: _around(
        values, shown, reshape(values.values, stored.value_type, shown.value_type)
    ),
    pa.lib.Type_MAP: _reshape_map,
}
