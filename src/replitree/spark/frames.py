"""The frames of `replitree.spark`, which the client finds by the entry point ``replitree.frames`` (`client.transport.frames`).

Each room is imported when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from replitree.client.transport.frames import Frames

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from replitree.client.change.change_results import OptimizeResult
    from replitree.client.insert.terms import InsertResult, Terms
    from replitree.client.read.snapshot import Snapshot
    from replitree.client.sharded.union import ShardedSnapshot
    from replitree.client.table import Table


class SparkFrames(Frames):
    """Spark, as the client asks for it."""

    @override
    def arrow_schema(self, frame: DataFrame) -> pa.Schema:
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(frame.schema, timezone="UTC")

    @override
    def insert(self, table: Table, frame: DataFrame, terms: Terms) -> InsertResult:
        from replitree.spark.write.write import insert_frame

        return insert_frame(table, frame, terms)

    @override
    def include_written(self, table: Table, spark: SparkSession) -> None:
        from replitree.spark.session.written import remember

        remember(table, spark)

    @override
    def note_written(self, table: Table, index: int | None, *, is_mutation: bool) -> None:
        from replitree.spark.session.written import note_through_table

        note_through_table(table, index, is_mutation=is_mutation)

    @override
    def read(
        self,
        snapshot: Snapshot | ShardedSnapshot,
        spark: SparkSession,
        columns: Sequence[str] | None,
        where: str | None,
        *,
        final: bool,
    ) -> DataFrame:
        if final:
            from replitree.spark.read.final import final_df

            return final_df(snapshot, spark, columns, where)
        from replitree.spark.read.read import snapshot_df

        return snapshot_df(snapshot, spark, columns, where)

    @override
    def understood(self, table: Table, spark: SparkSession, where: str | None) -> str | None:
        from replitree.spark.read.read import pushed

        return None if pushed(table.definition, spark, where)[0] is None else where

    @override
    def optimize(
        self, table: Table, spark: SparkSession, partition: str | None, *, final: bool, timeout_s: float
    ) -> OptimizeResult:
        from replitree.spark.merge.optimize import optimize_df

        return optimize_df(table, spark, partition, final=final, timeout_s=timeout_s)


FRAMES = SparkFrames()
"""The object that the entry point names."""
