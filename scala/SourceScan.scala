package io.replitree.spark

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, Row, SQLContext, SparkSession}
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.read.{Scan, ScanBuilder, SupportsPushDownFilters, SupportsPushDownRequiredColumns, V1Scan}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.sources.{BaseRelation, Filter, TableScan}
import org.apache.spark.sql.types.StructType

/**
 * A read that Spark's Parquet scan can't do by itself: `format("replitree")` does it, with the options `read`.
 *
 * So are rows merged for a final read, parts of older columns given the names and types of now, and changes. Columns and
 * filters are pushed down; Spark applies the filters again. The plan names the reason.
 *
 * `schema` may have columns behind those of the table; `streamed` are the options of streams.
 */
final class SourceScanBuilder(
    snapshot: LoadedSnapshot, why: String, schema: StructType, read: Map[String, String], streamed: Map[String, String])
    extends ScanBuilder with SupportsPushDownFilters with SupportsPushDownRequiredColumns {
  private var columns = schema
  private var condition = ""

  override def pushFilters(filters: Array[Filter]): Array[Filter] = {
    condition = Conditions.text(filters.filter(_.references.forall(snapshot.schema.fieldNames.contains(_))))
    filters
  }
  override def pushedFilters(): Array[Filter] = Array.empty

  /** Whole columns only: the source has no parts of structs. */
  override def pruneColumns(required: StructType): Unit =
    columns = StructType(schema.filter(field => required.fieldNames.contains(field.name)))

  override def build(): Scan = new SourceScan(snapshot, why, columns, condition, read, streamed, schema)
}

final class SourceScan(
    snapshot: LoadedSnapshot, why: String, columns: StructType, condition: String, read: Map[String, String],
    streamed: Map[String, String], schema: StructType)
    extends V1Scan {
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = snapshot.stream(streamed, schema, checkpoint)
  /** Rows come one by one; otherwise Spark would ask the readers of a stream while it plans. */
  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.UNSUPPORTED

  override def readSchema(): StructType = columns
  override def description(): String = s"replitree ${snapshot.description}, $why, condition: [$condition]"

  override def toV1TableScan[T <: BaseRelation with TableScan](context: SQLContext): T =
    new SourceRelation(context, columns, description(), () => frame(context.sparkSession)).asInstanceOf[T]

  private def frame(spark: SparkSession) = {
    val ofTable = columns.fieldNames.filter(snapshot.schema.fieldNames.contains(_))
    // The source needs a column to count rows by.
    val asked = if (ofTable.isEmpty) snapshot.schema.fieldNames.take(1) else ofTable
    val where = if (condition.isEmpty) Map.empty else Map("where" -> condition)
    val rows = spark.read.format("replitree").options(read ++ where + ("columns" -> asked.mkString(","))).load()
    rows.select(columns.fieldNames.map(name => col("`" + name.replace("`", "``") + "`")).toSeq: _*)
  }
}

final class SourceRelation(context: SQLContext, columns: StructType, text: String, frame: () => DataFrame)
    extends BaseRelation with TableScan {
  override def sqlContext: SQLContext = context
  override def schema: StructType = columns
  override def needConversion: Boolean = false
  // Spark's internal rows go on as they are: `needConversion` says so.
  override def buildScan(): RDD[Row] =
    frame().asInstanceOf[classic.Dataset[Row]].queryExecution.toRdd.asInstanceOf[RDD[Row]]
  override def toString: String = text
}
