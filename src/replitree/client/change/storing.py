"""Changes of where a table's rows lie, how long they stay, how long those that left it can be read, and of its change feed."""

from __future__ import annotations

from collections.abc import Sequence

from replitree.client.arguments import check_arguments
from replitree.client.change.change_results import TtlPlan
from replitree.client.change.changing import LOOK_S, ChangingTable
from replitree.client.change.command import COMMAND_S, CommandResult
from replitree.client.transport.catalog import Catalog
from replitree.client.transport.named_stores import with_url
from replitree.storage.schema.definition import names_in
from replitree.storage.schema.retention import parse_feed, parse_keep, parse_ttl, ttl_text
from replitree.storage.schema.storage_policy import parse_storage


@check_arguments
class TableStorage(ChangingTable):
    """The half of `replitree.client.table.Table` that says where its rows lie."""

    _catalog: Catalog

    def set_storage(
        self, storage: str, *, command_id: str | None = None, timeout_s: float = COMMAND_S
    ) -> CommandResult:
        """Change where the rows lie.  Parts that are there move afterwards, one by one, while everything else goes on.

        Parameters
        ----------
        storage
            ``"local"``; the URL of an object store; or ``"tiered(URL, older=7d)"``, ``"tiered(URL, free=100GB)"``, or with
            both; see `replitree.storage.schema.storage_policy`.  Instead of a URL the name that servers have given a
            store.  How far the parts are, `Connection.status` tells.
        command_id, timeout_s
            As `delete`; errors too.

        Raises
        ------
        BadInput
            It is no policy, the cluster has no store of this name, or the table's parts lie in another store.
        """
        wanted = parse_storage(with_url(self._catalog, storage)).text
        return self._command("storage", {"storage": wanted}, command_id, timeout_s)

    def set_keep(
        self, keep: str | None, *, command_id: str | None = None, timeout_s: float = COMMAND_S
    ) -> CommandResult:
        """Change for how long parts that leave the table stay on disk, and `as_of` can read them.  One entry of the log.

        Parts that have left already stay as long as the new setting says, counted from when they left; what is deleted stays
        deleted.

        Parameters
        ----------
        keep
            A number with a unit, as in ``"7 days"``, ``"36h"``, ``"90 min"``.  None: as each replica's own setting
            `old_parts_lifetime_s` says.
        command_id, timeout_s
            As `delete`; errors too.
        """
        return self._command("keep", {"keep": parse_keep(keep or "")}, command_id, timeout_s)

    def set_feed(
        self, feed: str | None, *, command_id: str | None = None, timeout_s: float = COMMAND_S
    ) -> CommandResult:
        """Change for how long the change feed is kept, or turn it off.  One entry of the log.

        Each replica keeps what the feed needs for that long: parts of inserts, parts that were changed, and parts that were
        removed.  The feed goes back as far as these are there still: what was deleted before does not come back.

        Parameters
        ----------
        feed
            A number with a unit, as in ``"24h"``.  None or ``"off"``: there is no feed.
        command_id, timeout_s
            As `delete`; errors too.
        """
        return self._command("feed", {"feed": parse_feed(feed or "")}, command_id, timeout_s)

    def set_ttl(self, ttl: str | None, *, command_id: str | None = None, timeout_s: float = COMMAND_S) -> CommandResult:
        """Change when rows are removed by themselves, or let them stay.  One entry of the log.

        The replica that leads removes rows that are past their time, some minutes to `ttl_interval_s` later; until then reads
        show them.  Partitions of which every row is past its time are dropped, other rows are deleted.

        Parameters
        ----------
        ttl
            A date or timestamp column of the order key or of `partition_by`, and a time: ``"at + 90 days"``,
            ``"at + 36 hours"``.  A row in which the column is null stays.  None or ``"off"``: all rows stay.
        command_id, timeout_s
            As `delete`; errors too.
        """
        return self._command("ttl", {"ttl": ttl_text(parse_ttl(ttl or ""))}, command_id, timeout_s)

    def plan_ttl(self, ttl: str | None = None) -> TtlPlan:
        """Return what a `ttl` would remove now; nothing is changed.

        Parameters
        ----------
        ttl
            As of `set_ttl`; None: the one that the table has.

        Raises
        ------
        BadInput
            The table can't have it, or none is given and it has none.
        """
        body = {"ttl": ttl or ttl_text(self._definition.ttl)}
        return self._commander.ask("POST", "ttl/plan", TtlPlan, body, timeout_s=LOOK_S)[1]

    def set_bloom(
        self, columns: str | Sequence[str], *, command_id: str | None = None, timeout_s: float = COMMAND_S
    ) -> CommandResult:
        """Change which columns get Bloom filters in the data files that are written from now on.  One entry of the log.

        Spark, and DuckDB where it opens the files itself, skip the row groups that have no row with the value of an equality.
        Files that are there get them when they are merged or mutated.

        Parameters
        ----------
        columns
            Columns of whole numbers, strings, binaries, dates or timestamps; a text with commas is a list, empty or ``"off"``:
            none.
        command_id, timeout_s
            As `delete`; errors too.
        """
        known = [column.name for column in self._definition.columns]
        wanted = () if columns == "off" else tuple(names_in(columns, known))
        return self._command("bloom", {"columns": wanted}, command_id, timeout_s)
