package io.replitree.spark

import org.apache.spark.rdd.RDD
import org.apache.spark.sql.{DataFrame, Row, SQLContext, SparkSession}
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.read.{Scan, ScanBuilder, SupportsPushDownFilters, SupportsPushDownRequiredColumns, V1Scan}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.functions.col
import org.apache.spark.sql.sources.{BaseRelation, Filter, TableScan}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A read that Spark's Parquet scan can't do by itself: `format("replitree")` does it, with the same snapshot.
 *
 * So are rows merged for a final read, and parts of older columns given the names and types of now. Columns and filters
 * are pushed down; Spark applies the filters again. The plan names the reason.
 */
final class SourceScanBuilder(snapshot: LoadedSnapshot, options: CaseInsensitiveStringMap, isFinal: Boolean, why: String)
    extends ScanBuilder with SupportsPushDownFilters with SupportsPushDownRequiredColumns {
  private var columns = snapshot.schema
  private var condition = ""

  override def pushFilters(filters: Array[Filter]): Array[Filter] = {
    condition = Conditions.text(filters)
    filters
  }
  override def pushedFilters(): Array[Filter] = Array.empty

  /** Whole columns only: the source has no parts of structs. */
  override def pruneColumns(required: StructType): Unit =
    columns = StructType(snapshot.schema.filter(field => required.fieldNames.contains(field.name)))

  override def build(): Scan = new SourceScan(snapshot, options, isFinal, why, columns, condition)
}

final class SourceScan(
    snapshot: LoadedSnapshot, options: CaseInsensitiveStringMap, isFinal: Boolean, why: String, columns: StructType,
    condition: String)
    extends V1Scan {
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = snapshot.stream(options, checkpoint)
  /** Rows come one by one; otherwise Spark would ask the readers of a stream while it plans. */
  override def columnarSupportMode(): Scan.ColumnarSupportMode = Scan.ColumnarSupportMode.UNSUPPORTED
  override def readSchema(): StructType = columns
  override def description(): String = s"replitree ${snapshot.description}, $why, condition: [$condition]"

  override def toV1TableScan[T <: BaseRelation with TableScan](context: SQLContext): T =
    new SourceRelation(context, columns, description(), () => frame(context.sparkSession)).asInstanceOf[T]

  private def frame(spark: SparkSession) = {
    // The source needs a column to count rows by.
    val read = if (columns.isEmpty) StructType(snapshot.schema.take(1)) else columns
    val where = if (condition.isEmpty) Map.empty else Map("where" -> condition)
    val asked = Map("columns" -> read.fieldNames.mkString(","), "final" -> isFinal.toString)
    val rows = spark.read.format("replitree").options(snapshot.sourceOptions ++ where ++ asked).load()
    rows.select(columns.fieldNames.map(name => col(quoted(name))).toSeq: _*)
  }

  private def quoted(name: String) = "`" + name.replace("`", "``") + "`"
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
