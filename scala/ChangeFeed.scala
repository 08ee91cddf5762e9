package io.replitree.spark

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.connector.catalog.{Changelog, Column, SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * What changed in a table: `SELECT … FROM replitree.default.events CHANGES FROM VERSION 3 TO VERSION 7`, `spark.read.changes`,
 * and, as a table, reads with the option `readChangeFeed`. The source in Python reads it (`read/feed_read.py`).
 *
 * `range` are the options that the planner makes of Spark's clause; those of a read come to them. A read without an end goes up to the
 * snapshot, which all uses in a query share; a stream goes on.
 *
 * Spark has nothing to add: no row comes that did not change, and updates have both images.
 */
final class ChangeFeed(snapshot: LoadedSnapshot, qualified: String, range: Map[String, String])
    extends Table with SupportsRead with Changelog {
  override def name(): String = qualified
  override val schema: StructType = StructType(
    snapshot.schema ++ StructType.fromDDL("_change_type string, _commit_version bigint, _commit_timestamp timestamp"))
  override def columns(): Array[Column] =
    schema.fields.map(field => Column.create(field.name, field.dataType, field.nullable))
  override def capabilities(): util.Set[TableCapability] =
    util.EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ)
  override def containsCarryoverRows(): Boolean = false
  override def containsIntermediateChanges(): Boolean = false
  override def representsUpdateAsDeleteAndInsert(): Boolean = false

  /** The same with the range of Spark's clause. */
  def within(clause: JsonNode): ChangeFeed = new ChangeFeed(snapshot, qualified, snapshot.texts(clause))

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    // Spark keeps the options of which it has made the range.
    val asked = options.asScala.toMap -- range.keys ++ range.filter(_._2.nonEmpty) + ("readchangefeed" -> "true")
    // A sharded table has versions that are cuts.
    val end = Map("endingversion" -> snapshot.properties.getOrElse("cut", (snapshot.index - 1).toString))
    new SourceScanBuilder(snapshot, "changes", schema, end ++ asked ++ snapshot.tableOptions, asked)
  }
}
