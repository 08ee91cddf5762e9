package io.replitree.spark

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory, Scan}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.execution.datasources.{FileStatusWithMetadata, NoopCache, PartitionDirectory}
import org.apache.spark.sql.execution.datasources.{PartitioningAwareFileIndex, PartitionSpec}
import org.apache.spark.sql.execution.datasources.parquet.ParquetOptions
import org.apache.spark.sql.execution.datasources.v2.parquet.{ParquetPartitionReaderFactory, ParquetScan, ParquetScanBuilder}
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.unsafe.types.UTF8String

/** A data file of a part, and the shard that has it; -1: the table is not sharded. */
final class PartFile(val part: String, val status: FileStatus, val shard: Int) {
  def path: Path = status.getPath
}

/**
 * The data files of one snapshot, as far as a scan's filters let them hold rows.
 *
 * The planner knows names and sizes, so Spark lists no folder. Files are asked for once, after the filters were pushed
 * down; until then the size of the whole snapshot is the estimate for joins.
 */
final class SnapshotFiles(spark: SparkSession, snapshot: LoadedSnapshot, options: Map[String, String])
    extends PartitioningAwareFileIndex(spark, options, Some(snapshot.schema), NoopCache) {

  private var condition = ""
  private var found: Option[Seq[PartFile]] = None
  private var kept: Option[Set[String]] = None
  private var showsParts = false

  /** Leaves out the parts that have no row which a condition keeps. */
  def prune(text: String): Unit = synchronized {
    condition = text
    found = None
  }

  /** Leaves out all parts but these, too. */
  def keep(parts: Set[String]): Unit = synchronized {
    kept = Some(kept.fold(parts)(_ & parts))
  }

  /** Gives rows the name of their part, in the column `_part`. */
  def showParts(): Unit = showsParts = true

  /** The names of the parts that are read. */
  def parts: Seq[String] = files.map(_.part).distinct

  /** The shard that has each file. */
  def shards: Map[String, Int] = files.map(file => file.path.toString -> file.shard).toMap

  private def files: Seq[PartFile] = synchronized {
    if (found.isEmpty) found = Some(snapshot.files(condition))
    kept.fold(found.get)(parts => found.get.filter(file => parts.contains(file.part)))
  }

  /** The files: a plan says how many they are. */
  override def rootPaths: Seq[Path] = files.map(_.path)
  override def partitionSpec(): PartitionSpec =
    if (showsParts) PartitionSpec(PartColumn.schema, Seq.empty) else PartitionSpec.emptySpec
  override protected def leafFiles: mutable.LinkedHashMap[Path, FileStatus] =
    mutable.LinkedHashMap.from(files.map(file => file.path -> file.status))
  override protected def leafDirToChildrenFiles: Map[Path, Array[FileStatus]] =
    files.groupBy(_.path.getParent).map { case (folder, some) => folder -> some.map(_.status).toArray }
  override def allFiles(): Seq[FileStatus] = files.map(_.status)
  override def listFiles(partitionFilters: Seq[Expression], dataFilters: Seq[Expression]): Seq[PartitionDirectory] =
    if (files.isEmpty) Seq.empty
    else if (!showsParts) Seq(directory(InternalRow.empty, files))
    else files.groupBy(_.part).toSeq.sortBy(_._1).map { case (part, some) =>
      directory(InternalRow(UTF8String.fromString(part)), some)
    }
  override def inputFiles: Array[String] = files.map(_.path.toString).toArray
  override def sizeInBytes: Long = if (condition.isEmpty && kept.isEmpty) snapshot.bytes else files.map(_.status.getLen).sum

  private def directory(values: InternalRow, some: Seq[PartFile]) =
    PartitionDirectory(values, some.map(file => FileStatusWithMetadata(file.status, Map.empty)))

  /** A snapshot never changes. */
  override def refresh(): Unit = ()

  override def toString: String = s"replitree ${snapshot.description}"

  /** Two scans of one snapshot with one condition read the same rows, so that Spark may do the work once. */
  override def equals(other: Any): Boolean = other match {
    case files: SnapshotFiles => files.identity == identity
    case _ => false
  }
  override def hashCode(): Int = identity.hashCode
  private def identity = (snapshot.tableId, snapshot.version, condition, kept, showsParts)
}

/** Spark's own scan of Parquet files, with the files of the parts that can hold rows which the filters keep. */
class SnapshotScanBuilder(
    spark: SparkSession, files: SnapshotFiles, schema: StructType, options: CaseInsensitiveStringMap,
    sharding: Option[Transform], streams: String => MicroBatchStream)
    extends ParquetScanBuilder(spark, files, schema, schema, options) {

  /** Whether a name is that of the column `_part`, and of none of the table's. */
  private def isPart(name: String): Boolean = name == PartColumn.Name && !PartColumn.isTaken(schema)

  /** The filters that do not name `_part`, which files have not: Spark applies the others to rows. */
  protected def ofColumns(filters: Array[Filter]): Array[Filter] = filters.filterNot(_.references.exists(isPart(_)))

  override def pushDataFilters(filters: Array[Filter]): Array[Filter] = {
    // In one order: two scans that differ in nothing else are the same scan to Spark, which then runs it once.
    val ofFiles = ofColumns(filters).map(Conditions.ordered).sortBy(_.toString)
    files.prune(Conditions.text(ofFiles))
    super.pushDataFilters(ofFiles)
  }

  override def pruneColumns(required: StructType): Unit = {
    if (required.fieldNames.exists(isPart(_))) files.showParts()
    super.pruneColumns(StructType(required.filterNot(field => isPart(field.name))))
  }

  override def readPartitionSchema(): StructType = files.partitionSchema

  override def build(): ParquetScan = {
    val scan = super.build()
    // Of a Spark whose scan has other fields, the scan is left as it is: it plans more slowly.
    try sharding.fold(new SnapshotScan(scan, streams))(new ShardedScan(scan, streams, files, _))
    catch { case _: LinkageError => scan }
  }
}

/**
 * Spark's own scan, which plans its partitions once, and makes its readers' factory once, when the query runs.
 *
 * Spark asks for both each time that it looks at the scan, adaptive planning included: whether the rows come in columns
 * decides the rules of the plan. Each factory sends the whole Hadoop configuration to the executors, which is most of
 * the time that planning takes.
 */
class SnapshotScan(scan: ParquetScan, streams: String => MicroBatchStream)
    extends ParquetScan(
      scan.sparkSession, scan.hadoopConf, scan.fileIndex, scan.dataSchema, scan.readDataSchema, scan.readPartitionSchema,
      scan.pushedFilters, scan.options, scan.pushedAggregate, scan.partitionFilters, scan.dataFilters,
      scan.pushedVariantExtractions) {
  private var isStream = false
  @transient private lazy val factory = super.createReaderFactory()
  @transient private lazy val partitionsOnce = super.planInputPartitions()
  @transient private lazy val columnar = {
    val conf = sparkSession.sessionState.conf
    // It has the configuration only when it opens files.
    val unsent = ParquetPartitionReaderFactory(
      conf, null, dataSchema, readDataSchema, readPartitionSchema, pushedFilters, pushedAggregate,
      new ParquetOptions(options.asCaseSensitiveMap.asScala.toMap, conf))
    if (unsent.supportColumnarReads(null)) Scan.ColumnarSupportMode.SUPPORTED else Scan.ColumnarSupportMode.UNSUPPORTED
  }

  override def createReaderFactory(): PartitionReaderFactory = factory
  override def planInputPartitions(): Array[InputPartition] = partitionsOnce
  override def columnarSupportMode(): Scan.ColumnarSupportMode =
    // Of a Spark whose factory has other fields, Spark makes the factory itself while it plans.
    if (isStream) Scan.ColumnarSupportMode.UNSUPPORTED
    else try columnar catch { case _: LinkageError => super.columnarSupportMode() }

  /** Spark asks for it before anything else of a scan that a stream has; its rows come one by one. */
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = {
    isStream = true
    streams(checkpoint)
  }
}

object SnapshotScanBuilder {
  /**
   * How Spark must read the files, whatever the session says: one that is missing or damaged fails the query.
   *
   * Pages' own checksums are not compared: every byte of these files is compared with a checksum before Parquet has it.
   */
  private val settings = Map(
    "mergeSchema" -> "false",
    "ignoreMissingFiles" -> "false",
    "ignoreCorruptFiles" -> "false",
    "datetimeRebaseMode" -> "CORRECTED",
  )

  def of(snapshot: LoadedSnapshot, streams: String => MicroBatchStream): SnapshotScanBuilder = {
    val (spark, files, options) = sources(snapshot)
    new SnapshotScanBuilder(spark, files, snapshot.schema, options, snapshot.sharding, streams)
  }

  /** Returns what every builder of a snapshot's scans is made of: the session, the files, and the options of their readers. */
  def sources(snapshot: LoadedSnapshot): (SparkSession, SnapshotFiles, CaseInsensitiveStringMap) = {
    val spark = SparkSession.active
    // The planner's options hold the secret of its gateway; Spark's plans show a scan without its options.
    val options = settings ++ snapshot.readOptions
    (spark, new SnapshotFiles(spark, snapshot, options), new CaseInsensitiveStringMap(options.asJava))
  }
}
