package io.replitree.spark

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.connector.read.PartitionReaderFactory
import org.apache.spark.sql.execution.datasources.{FileStatusWithMetadata, NoopCache, PartitionDirectory}
import org.apache.spark.sql.execution.datasources.{PartitioningAwareFileIndex, PartitionSpec}
import org.apache.spark.sql.execution.datasources.v2.parquet.{ParquetScan, ParquetScanBuilder}
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * The data files of one snapshot, as far as a scan's filters let them hold rows.
 *
 * The planner knows names and sizes, so Spark lists no folder. Files are asked for once, after the filters were pushed
 * down; until then the size of the whole snapshot is the estimate for joins.
 */
final class SnapshotFiles(spark: SparkSession, snapshot: LoadedSnapshot, options: Map[String, String])
    extends PartitioningAwareFileIndex(spark, options, Some(snapshot.schema), NoopCache) {

  private var condition = ""
  private var found: Option[Seq[FileStatus]] = None

  /** Leaves out the parts that have no row which a condition keeps. */
  def prune(text: String): Unit = synchronized {
    condition = text
    found = None
  }

  private def files: Seq[FileStatus] = synchronized {
    if (found.isEmpty) found = Some(snapshot.files(condition))
    found.get
  }

  /** The files: a plan says how many they are. */
  override def rootPaths: Seq[Path] = files.map(_.getPath)
  override def partitionSpec(): PartitionSpec = PartitionSpec.emptySpec
  override protected def leafFiles: mutable.LinkedHashMap[Path, FileStatus] =
    mutable.LinkedHashMap.from(files.map(file => file.getPath -> file))
  override protected def leafDirToChildrenFiles: Map[Path, Array[FileStatus]] =
    files.groupBy(_.getPath.getParent).map { case (folder, some) => folder -> some.toArray }
  override def allFiles(): Seq[FileStatus] = files
  override def listFiles(partitionFilters: Seq[Expression], dataFilters: Seq[Expression]): Seq[PartitionDirectory] =
    if (files.isEmpty) Seq.empty
    else Seq(PartitionDirectory(InternalRow.empty, files.map(FileStatusWithMetadata(_, Map.empty))))
  override def inputFiles: Array[String] = files.map(_.getPath.toString).toArray
  override def sizeInBytes: Long = if (condition.isEmpty) snapshot.bytes else files.map(_.getLen).sum

  /** A snapshot never changes. */
  override def refresh(): Unit = ()

  override def toString: String = s"replitree ${snapshot.description}"

  /** Two scans of one snapshot with one condition read the same rows, so that Spark may do the work once. */
  override def equals(other: Any): Boolean = other match {
    case files: SnapshotFiles => files.identity == identity
    case _ => false
  }
  override def hashCode(): Int = identity.hashCode
  private def identity = (snapshot.tableId, snapshot.version, condition)
}

/** Spark's own scan of Parquet files, with the files of the parts that can hold rows which the filters keep. */
final class SnapshotScanBuilder(
    spark: SparkSession, files: SnapshotFiles, schema: StructType, options: CaseInsensitiveStringMap)
    extends ParquetScanBuilder(spark, files, schema, schema, options) {

  override def pushDataFilters(filters: Array[Filter]): Array[Filter] = {
    files.prune(Conditions.text(filters))
    super.pushDataFilters(filters)
  }

  override def build(): ParquetScan = {
    val scan = super.build()
    // Of a Spark whose scan has other fields, the scan is left as it is: it plans more slowly.
    try new SnapshotScan(scan)
    catch { case _: LinkageError => scan }
  }
}

/**
 * Spark's own scan, which makes its readers' factory once.
 *
 * Spark asks for the factory each time it plans the scan, adaptive planning included, and each factory sends the whole
 * Hadoop configuration to the executors: 60 % of the time that planning took in TPC-H.
 */
final class SnapshotScan(scan: ParquetScan)
    extends ParquetScan(
      scan.sparkSession, scan.hadoopConf, scan.fileIndex, scan.dataSchema, scan.readDataSchema, scan.readPartitionSchema,
      scan.pushedFilters, scan.options, scan.pushedAggregate, scan.partitionFilters, scan.dataFilters,
      scan.pushedVariantExtractions) {
  @transient private lazy val factory = super.createReaderFactory()

  override def createReaderFactory(): PartitionReaderFactory = factory
}

object SnapshotScanBuilder {
  /** How Spark must read the files, whatever the session says: one that is missing or damaged fails the query. */
  private val settings = Map(
    "mergeSchema" -> "false",
    "ignoreMissingFiles" -> "false",
    "ignoreCorruptFiles" -> "false",
    "parquet.page.verify-checksum.enabled" -> "true",
    "datetimeRebaseMode" -> "CORRECTED",
  )

  def of(snapshot: LoadedSnapshot): SnapshotScanBuilder = {
    val spark = SparkSession.active
    // The planner's options hold the secret of its gateway; Spark's plans show a scan without its options.
    val options = settings ++ snapshot.readOptions
    val files = new SnapshotFiles(spark, snapshot, options)
    new SnapshotScanBuilder(spark, files, snapshot.schema, new CaseInsensitiveStringMap(options.asJava))
  }
}
