"""Merge policies: what a table makes of rows that have equal order keys.

A policy is text in the table's definition, as people write it::

    plain                     every row stays
    replacing                 of rows with equal keys, the last inserted stays
    replacing(version)        ... the one with the highest version; of equal versions, the last inserted
    replacing(version, gone)  ... and where `gone` is true, or a number other than 0, in that row, no final read shows the key
    summing                   rows with equal keys become one: numbers are added, all that are not in a key
    summing(clicks, cost)     ... these numbers are added

Guarantees: `parse_policy(p.text) == p`; a policy that `check_policy` accepted fits the table's columns.

A policy takes effect when parts are merged, at a time that is not known in advance: until then rows with equal keys coexist.
A *final* read applies the policy to what it reads (see `replitree.storage.rewrite.merge`).

What exactly becomes of the rows is said, and done, in `replitree.storage.rewrite.merge_reduce`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from replitree.errors import BadInput
from replitree.storage.files.names import format_name
from replitree.storage.schema.type_kinds import MOMENTS, NUMBERS, WHOLE_NUMBERS, kind_of

if TYPE_CHECKING:
    import pyarrow as pa

_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`,()]+))\s*")


class PolicyKind(Enum):
    """The kinds of policies for rows with equal keys."""

    PLAIN = "plain"
    REPLACING = "replacing"
    SUMMING = "summing"


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """A policy; made by `parse_policy`.

    Attributes
    ----------
    kind
        What happens to rows with equal keys.
    columns
        For `replacing` the version column, or none, and after it the delete marker, or none; for `summing` the columns that are
        added, none for all that can be.
    """

    kind: PolicyKind = PolicyKind.PLAIN
    columns: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The policy as a definition writes it; `parse_policy` reads it."""
        inside = ", ".join(format_name(name) for name in self.columns)
        return f"{self.kind.value}({inside})" if inside else self.kind.value

    @property
    def version(self) -> str | None:
        """The column by which one of several rows is kept, or None: the last inserted is."""
        return self.columns[0] if self.kind is PolicyKind.REPLACING and self.columns else None

    @property
    def deleted(self) -> str | None:
        """The delete marker: the column that says of a row that its key is deleted; None when rows can't say that."""
        return self.columns[1] if self.kind is PolicyKind.REPLACING and len(self.columns) > 1 else None

    def summed(self, schema: pa.Schema, keys: Sequence[str]) -> tuple[str, ...]:
        """Give the columns that are added, in the order of the schema.

        Parameters
        ----------
        schema
            The table's.
        keys
            The columns of the order key and of the partition transforms.
        """
        if self.kind is not PolicyKind.SUMMING:
            return ()
        chosen = self.columns or tuple(f.name for f in schema if is_numeric(f.type) and f.name not in keys)
        return tuple(f.name for f in schema if f.name in chosen)

    def renamed(self, old: str, new: str) -> MergePolicy:
        """Give the policy after a column got another name."""
        return MergePolicy(self.kind, tuple(new if name == old else name for name in self.columns))


PLAIN = MergePolicy()


def parse_policy(text: str) -> MergePolicy:
    """Read a policy.

    Raises
    ------
    BadInput
        Not a policy; lists those there are.

    Examples
    --------
    >>> parse_policy(" Summing( clicks,`odd name` )").text
    'summing(clicks, `odd name`)'
    """
    call = re.fullmatch(r"\s*([A-Za-z]+)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    # The pattern takes any text in the parentheses: names in backquotes may contain some.
    word = call.group(1).lower() if call is not None else ""
    if call is None or word not in PolicyKind._value2member_map_:
        raise BadInput(
            f"{text!r} is not a merge policy: use plain, replacing(version), replacing(version, is_deleted) or"
            " summing(columns)"
        )
    inside, names, at = call.group(2) or "", list[str](), 0
    while inside.strip():
        found = _NAME.match(inside, at)
        if found is None:
            raise BadInput(f"{text!r}: expected a column's name at {inside[at:]!r}; put an odd one in backquotes")
        quoted, plain = found.groups()
        names.append(plain if quoted is None else quoted.replace("``", "`"))
        at = found.end()
        if at == len(inside):
            break
        if inside[at] != ",":
            raise BadInput(f"{text!r}: expected a comma at {inside[at:]!r}")
        at += 1
    return MergePolicy(PolicyKind(word), tuple(names))


def check_policy(policy: MergePolicy, columns: Mapping[str, str], order_by: Sequence[str], keys: Sequence[str]) -> None:
    """Check that a table with these columns can have a policy.

    Parameters
    ----------
    columns
        Text forms of their types, by name.
    order_by, keys
        The order key; and with it the columns of the partition transforms.

    Raises
    ------
    BadInput
        It can't; says what to use instead.
    """
    if policy.kind is PolicyKind.PLAIN:
        # A policy that takes no columns would silently ignore them.
        if policy.columns:
            raise BadInput(f"{policy.text}: plain takes no columns")
        return
    if not order_by:
        raise BadInput(f"{policy.text} compares rows by the order key: give the table one (order_by)")
    for name in policy.columns:
        if name not in columns:
            raise BadInput(f"{policy.text}: there is no column {name!r}")
    _CHECKS[policy.kind](policy, columns, keys)


def _check_replacing(policy: MergePolicy, columns: Mapping[str, str], keys: Sequence[str]) -> None:
    if len(policy.columns) > 2:
        raise BadInput(
            f"{policy.text}: replacing takes a version column and a delete marker, the version alone, or none"
        )
    for name in policy.columns[:1]:
        if kind_of(columns[name]) not in WHOLE_NUMBERS | MOMENTS:
            raise BadInput(f"{policy.text}: a version is a whole number, a date or a timestamp, {name!r} is not")
        if name in keys:
            raise BadInput(f"{policy.text}: {name!r} is in a key, so rows with equal keys have no different versions")
    for name in policy.columns[1:]:
        if kind_of(columns[name]) not in WHOLE_NUMBERS | {"boolean"}:
            raise BadInput(f"{policy.text}: a delete marker is a boolean or a whole number, {name!r} is not")
        if name in keys:
            raise BadInput(
                f"{policy.text}: {name!r} is in a key, so a deletion would have another key than what it deletes"
            )
        if name == policy.version:
            raise BadInput(
                f"{policy.text}: the version can't be the delete marker as well: give the table another column"
            )


def _check_summing(policy: MergePolicy, columns: Mapping[str, str], keys: Sequence[str]) -> None:
    if len(set(policy.columns)) < len(policy.columns):
        raise BadInput(f"{policy.text} has a column twice")
    for name in policy.columns:
        if kind_of(columns[name]) not in NUMBERS:
            raise BadInput(f"{policy.text}: {name!r} has no numbers to add")
        if name in keys:
            raise BadInput(f"{policy.text}: {name!r} is in the order key or in partition_by, which must not change")
    if not policy.columns and not any(kind_of(text) in NUMBERS for name, text in columns.items() if name not in keys):
        raise BadInput(f"{policy.text}: no column outside the keys has numbers to add")


_CHECKS = {PolicyKind.REPLACING: _check_replacing, PolicyKind.SUMMING: _check_summing}


def is_numeric(arrow: pa.DataType) -> bool:
    """Tell whether values of a type can be added."""
    from pyarrow import types as kinds

    return bool(kinds.is_integer(arrow) or kinds.is_floating(arrow) or kinds.is_decimal(arrow))
