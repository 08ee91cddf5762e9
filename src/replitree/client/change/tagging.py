"""Tags: names of versions of a table, whose parts stay until the tag is deleted."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from replitree.client.arguments import check_arguments
from replitree.client.change.changing import ChangingTable
from replitree.client.change.command import COMMAND_S, check_id
from replitree.client.read.as_of import AsOf, index_of
from replitree.client.read.earlier import EarlierEntries
from replitree.client.read.tags import Tag, read_named, tag_names
from replitree.client.transport.catalog import Catalog
from replitree.errors import BadInput
from replitree.protocol.upkeep.tags import check_tag_name


class _Made(msgspec.Struct, frozen=True):
    index: int


class _Deleted(msgspec.Struct, frozen=True):
    deleted: bool


@check_arguments
class TableTags(ChangingTable):
    """The part of a `replitree.client.table.Table` that gives versions names."""

    _catalog: Catalog
    _earlier: EarlierEntries

    def tag(
        self, name: str, as_of: AsOf | None = None, *, command_id: str | None = None, timeout_s: float = COMMAND_S
    ) -> Tag:
        """Give a version of the table a name; its parts stay until the tag is deleted.

        Parameters
        ----------
        name
            A letter, then letters, digits, ``_``, ``.`` and ``-``.
        as_of
            The version: an index of the log, a time, or another tag.  By default the table with everything that any client was
            told of before this call.
        command_id
            Of an earlier try; with the same id the tag of that try is the answer.
        timeout_s
            How long to wait until a replica has the version, in seconds.

        Raises
        ------
        BadInput
            There is a tag of this name, or the name can't be one.
        SnapshotExpired
            Parts of the version are gone.
        Unavailable
            No replica makes the tag; there is none.
        OutcomeUnknown
            There may be one: repeat it with the same id.
        """
        check_tag_name(name)
        index, known_as = index_of(self._catalog, self.name, as_of, self._earlier.written_by), check_id(command_id)
        body = {"name": name, "id": known_as, "min_index": max(self._written.index, self._written.mutated) + 1}
        if index is not None:
            body["as_of"] = index
        # With one id it may be asked for again: a replica that finds the tag answers with it.
        self._commander.ask("POST", "tags", _Made, body, timeout_s=timeout_s, known_as=known_as)
        found = self._catalog.run(read_named(self._catalog.place(self.name), name))
        if found is None:
            raise BadInput(f"tag {name!r} was made, and deleted by another client a moment later")
        return found

    def tags(self) -> tuple[Tag, ...]:
        """Return the tags, by version: the oldest version first."""
        place = self._catalog.place(self.name)
        found = (self._catalog.run(read_named(place, name)) for name in self._catalog.run(tag_names(place)))
        tags = tuple(sorted((tag for tag in found if tag is not None), key=lambda tag: (tag.index, tag.name)))
        return self._catalog.of_table(self.name, tags)

    def delete_tag(self, name: str, *, timeout_s: float = COMMAND_S) -> None:
        """Delete a tag; parts that only it has kept are deleted from disk within a minute.

        Parameters
        ----------
        name
            The tag's.
        timeout_s
            How long to wait for a replica, in seconds.

        Raises
        ------
        BadInput
            There is no such tag.
        Unavailable
            No replica says that it has deleted it; try again.
        """
        place = self._catalog.place(self.name)
        names = self._catalog.of_table(self.name, self._catalog.run(tag_names(place)))
        if check_tag_name(name) not in names:
            raise BadInput(f"table {self.name} has no tag {name!r}; it has {', '.join(names) or 'none'}")
        self._commander.ask("DELETE", f"tags/{quote(name)}", _Deleted, timeout_s=timeout_s)
