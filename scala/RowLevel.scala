package io.replitree.spark

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.scheduler.{SparkListener, SparkListenerEvent}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.catalog.MetadataColumn
import org.apache.spark.sql.connector.expressions.{Expressions, Literal, NamedReference}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read.{ScanBuilder, SupportsRuntimeV2Filtering}
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, RowLevelOperation, WriteBuilder}
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScan
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.{DataType, StringType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * `UPDATE`, `MERGE INTO`, and the `DELETE`s that are no mutation: copy-on-write of whole parts.
 *
 * Order; `catalog/rewriting.py` does what the planner is asked for:
 *
 *  1. *begin*   when Spark plans the first scan: a replica says what the table is at the end of its log, and keeps these parts.
 *               Everything in the statement that reads the table reads this
 *  2. *read*    the parts that can hold matching rows: by statistics, then by a query of Spark's for the parts that do
 *  3. *write*   tasks write the rows that each part has afterwards, and the new rows ([[RewriteWrite]]); of a table in an object
 *               store a process beside the executor puts them there ([[StoreFiles]])
 *  4. *commit*  the planner makes parts of the files, and commits one entry; or nothing
 *  5. *end*     with Spark's execution, however it ends: what was kept for the statement goes
 *
 * Absent on purpose: another try after a conflict. Spark does not plan a statement again, so its error says to run it again.
 */
final class Rewrite(planner: Planner, table: String, through: Option[String]) {
  @volatile private var isOver = false
  private var started: BegunRewrite = _

  /** Whether scans of the table are those of the statement. */
  def isOpen: Boolean = !isOver

  /** Begins at the first call, in the execution that this thread plans. */
  def begun: BegunRewrite = synchronized {
    if (started == null) {
      val context = SparkSession.active.sparkContext
      val execution = context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY)
      if (execution == null)
        throw new CatalogError(s"a statement that changes rows of $table can be planned only when it is executed")
      started = new BegunRewrite(planner, table, planner.answer("begin_rewrite", "table" -> table, "through" -> through.orNull))
      context.addSparkListener(new RewriteEnd(execution.toLong, this))
    }
    started
  }

  def end(): Unit = {
    isOver = true
    begun.end()
  }
}

/** Ends a statement with its execution; a listener hears of the end however it comes. */
final class RewriteEnd(execution: Long, rewrite: Rewrite) extends SparkListener {
  private val context = SparkSession.active.sparkContext

  override def onOtherEvent(event: SparkListenerEvent): Unit = event match {
    case end: SparkListenerSQLExecutionEnd if end.executionId == execution =>
      context.removeSparkListener(this)
      rewrite.end()
    case _ =>
  }
}

/** What the planner has begun: the snapshot that the statement reads, and how files of its results are written. */
final class BegunRewrite(planner: Planner, table: String, answer: JsonNode) {
  private val id = answer.get("rewrite").asText

  val snapshot = new LoadedSnapshot(planner, table, answer)
  /** Where tasks write. */
  val folder: String = answer.get("folder").asText
  /** Where tasks send their files that do not see that folder: address, path of the upload, a ticket, and the files of TLS. */
  val upload: Array[String] = answer.get("upload").elements.asScala.map(_.asText).toArray
  /** How tasks put their files into the table's object store; null: they do not. */
  val store: StoreFiles =
    if (answer.get("job").asText.isEmpty) null
    else new StoreFiles(
      planner.python, answer.get("job").asText, answer.get("must_put").asBoolean, answer.get("replica").asText)
  /** The columns, by their names in files. */
  val stored: StructType = DataType.fromJson(answer.get("stored").asText).asInstanceOf[StructType]
  /** The columns of the order key, as Spark's expressions name them. */
  val orderBy: Seq[String] = answer.get("order_by").elements.asScala.map(_.asText).toSeq
  val writerOptions: Map[String, String] = snapshot.texts(answer.get("writer_options"))

  /** The files of the scan that reads the rows which the statement may change; Spark plans one for a statement. */
  private var files: SnapshotFiles = _

  def scanBuilder(): ScanBuilder = {
    val (spark, found, options) = SnapshotScanBuilder.sources(snapshot)
    files = found
    new RowScanBuilder(spark, found, snapshot.schema, options)
  }

  /** Commits what tasks have written: paths of files, each with its part; of new rows that is "". */
  def commit(statement: String, written: Seq[WrittenFiles], isolation: String): Unit =
    planner.answer(
      "commit_rewrite",
      "rewrite" -> id,
      "statement" -> statement,
      "parts" -> (if (files == null) Array.empty[String] else files.parts.toArray),
      "written" -> written.flatMap(_.files).toArray,
      "told" -> written.map(_.told).filter(_.nonEmpty).toArray,
      "isolation" -> isolation)

  def end(): Unit = planner.tell("end_rewrite", "rewrite" -> id)
}

/** One statement's changes of the rows of a table, whatever they are. */
final class RewriteOperation(rewrite: Rewrite, statement: RowLevelOperation.Command, isolation: String)
    extends RowLevelOperation {
  override def command(): RowLevelOperation.Command = statement
  override def requiredMetadataAttributes(): Array[NamedReference] = Array(PartColumn.reference)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = rewrite.begun.scanBuilder()
  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    // Spark would hand the column to the writer with those of the table.
    if (info.schema.fieldNames.contains(PartColumn.Name))
      throw new CatalogError(s"a statement that changes rows can't name the column ${PartColumn.Name}")
    new RewriteWrite(rewrite.begun, statement.toString, isolation)
  }
}

/** The scan of the rows that a statement may change: filters leave out parts; of the others it reads every row. */
final class RowScanBuilder(
    spark: SparkSession, files: SnapshotFiles, schema: StructType, options: CaseInsensitiveStringMap)
    extends SnapshotScanBuilder(spark, files, schema, options, None, null) {
  override def pushDataFilters(filters: Array[Filter]): Array[Filter] = {
    files.prune(Conditions.text(ofColumns(filters)))
    Array.empty
  }

  override def build(): ParquetScan = super.build() match {
    case scan: SnapshotScan => new RowScan(scan, files)
    // Of a Spark whose scan has other fields: without the query for parts with matching rows.
    case other => other
  }
}

/** Spark runs a query for the parts that have matching rows, and leaves out the others. */
final class RowScan(scan: ParquetScan, files: SnapshotFiles) extends SnapshotScan(scan, null) with SupportsRuntimeV2Filtering {
  override def filterAttributes(): Array[NamedReference] = Array(PartColumn.reference)

  /** The one attribute has only values: `_part IN (…)`. */
  override def filter(predicates: Array[Predicate]): Unit =
    for (each <- predicates if each.name == "IN")
      files.keep(each.children.tail.map(_.asInstanceOf[Literal[_]].value.toString).toSet)
}

/** The column that a scan of the catalog has beside those of the table: the name of a row's part. */
object PartColumn extends MetadataColumn {
  val Name = "_part"
  val schema: StructType = new StructType().add(Name, StringType)
  def reference: NamedReference = Expressions.column(Name)

  override def name(): String = Name
  override def dataType(): DataType = StringType
  override def comment(): String = "the part that has the row"

  /** Whether the table has a column of this name itself. */
  def isTaken(columns: StructType): Boolean = columns.fieldNames.exists(_.equalsIgnoreCase(Name))
}
