package io.replitree.spark

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.read.{LocalScan, ScanBuilder}
import org.apache.spark.sql.types.{ArrayType, BooleanType, DataType, DoubleType, StringType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.unsafe.types.UTF8String

/**
 * Rows that the planner answers, as a table and as its scan: the history of a table, newest entry first, which is
 * `replitree.default.events.history`; and what a procedure returns.
 *
 * The driver asks for the rows when a query is planned; no task runs. Each use in a query asks anew.
 */
final class AnswerRows(qualified: String, shape: StructType, ask: () => JsonNode)
    extends Table with SupportsRead with LocalScan {
  override def name(): String = qualified
  override def schema(): StructType = shape
  override def capabilities(): util.Set[TableCapability] = util.EnumSet.of(TableCapability.BATCH_READ)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () => this
  override def readSchema(): StructType = shape
  override def description(): String = s"replitree $qualified"
  override def rows(): Array[InternalRow] = AnswerRows.of(ask(), shape)
}

object AnswerRows {
  val History: StructType = StructType.fromDDL(
    "index bigint not null, time timestamp, kind string not null, replica string not null, rows bigint, bytes bigint, "
      + "ids array<string> not null, command string not null, duration_s double")

  /** Rows whose fields are in the order of the columns; times are in microseconds since 1970. */
  def of(rows: JsonNode, shape: StructType): Array[InternalRow] =
    rows.elements.asScala.map { row =>
      InternalRow.fromSeq(shape.fields.zipWithIndex.map { case (field, at) => value(row.get(at), field.dataType) }.toSeq)
    }.toArray

  private def value(node: JsonNode, kind: DataType): Any = kind match {
    case _ if node.isNull => null
    case StringType => UTF8String.fromString(node.asText)
    case BooleanType => node.asBoolean
    case DoubleType => node.asDouble
    case ArrayType(element, _) => new GenericArrayData(node.elements.asScala.map(value(_, element)).toArray)
    case _ => node.asLong
  }
}
