package io.replitree.spark

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.read.{LocalScan, ScanBuilder}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.unsafe.types.UTF8String

/**
 * The kept log of a table, newest entry first, as a table of its own: `replitree.default.events.history`.
 *
 * The driver reads the entries through the planner when a query is planned; no task runs. Each use in a query reads them anew.
 */
final class HistoryTable(planner: Planner, table: String, qualified: String) extends Table with SupportsRead with LocalScan {
  override def name(): String = qualified
  override def schema(): StructType = HistoryTable.Columns
  override def capabilities(): util.Set[TableCapability] = util.EnumSet.of(TableCapability.BATCH_READ)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () => this
  override def readSchema(): StructType = HistoryTable.Columns
  override def description(): String = s"log of $table"
  override def rows(): Array[InternalRow] =
    planner.answer("history", "table" -> table).elements.asScala.map(HistoryTable.row).toArray
}

object HistoryTable {
  private val Columns: StructType = StructType.fromDDL(
    "index bigint not null, time timestamp not null, kind string not null, replica string not null, rows bigint, bytes bigint, "
      + "ids array<string> not null, command string not null, duration_s double")

  /** The planner's fields are in the order of the columns; the time is in microseconds since 1970. */
  private def row(entry: JsonNode): InternalRow = {
    def text(at: Int) = UTF8String.fromString(entry.get(at).asText)
    def number(at: Int): Any = if (entry.get(at).isNull) null else entry.get(at).asLong
    val ids = entry.get(6).elements.asScala.map[Any](id => UTF8String.fromString(id.asText)).toArray
    val duration: Any = if (entry.get(8).isNull) null else entry.get(8).asDouble
    InternalRow(
      number(0), number(1), text(2), text(3), number(4), number(5), new GenericArrayData(ids), text(7), duration)
  }
}
