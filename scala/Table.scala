package io.replitree.spark

import java.util
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.fs.{FileStatus, Path}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{MetadataColumn, SupportsAtomicPartitionManagement, SupportsDelete}
import org.apache.spark.sql.connector.catalog.{SupportsMetadataColumns, SupportsRead, SupportsRowLevelOperations}
import org.apache.spark.sql.connector.catalog.{SupportsWrite, Table, TableCapability}
import org.apache.spark.sql.connector.expressions.{Expressions, Transform}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, LogicalWriteInfoImpl, RowLevelOperationBuilder}
import org.apache.spark.sql.connector.write.{RowLevelOperationInfo, SupportsDynamicOverwrite, SupportsOverwrite}
import org.apache.spark.sql.connector.write.{SupportsTruncate, Write, WriteBuilder}
import org.apache.spark.sql.sources.Filter
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** One snapshot of a table, as the planner has loaded it; the planner keeps it under `handle`, with the lease of its files. */
final class LoadedSnapshot(planner: Planner, name: String, answer: JsonNode) {
  val handle: String = answer.get("handle").asText

  val tableId: String = answer.get("table_id").asText
  val index: Long = answer.get("index").asLong
  /** Names the rows: the index, and which parts have them. */
  val version: String = answer.get("version").asText
  val schema: StructType = DataType.fromJson(answer.get("schema").asText).asInstanceOf[StructType]
  val bytes: Long = answer.get("bytes").asLong
  val isPlain: Boolean = answer.get("is_plain").asBoolean
  /** Why Spark's own scan can't read it; "" when it can. */
  val otherWay: String = answer.get("other_way").asText
  val properties: Map[String, String] = texts(answer.get("properties"))
  /** Options of a reader that opens the files. */
  val readOptions: Map[String, String] = texts(answer.get("read_options"))
  /** Options of `format("replitree")` that name the table; and those that read the same snapshot of it, too. */
  val tableOptions: Map[String, String] = texts(answer.get("table_options"))
  val sourceOptions: Map[String, String] = tableOptions ++ texts(answer.get("snapshot_options"))
  val description: String = s"$name at $index of ${answer.get("replica").asText}"

  /** The transforms as columns of statements about partitions. */
  val partitionSchema: StructType = DataType.fromJson(answer.get("partition_schema").asText).asInstanceOf[StructType]
  /** Each is its name in Spark with its arguments: a column, or a whole number before it. */
  val partitioning: Array[Transform] = answer.get("partition_by").elements.asScala.map { each =>
    val (name, column) = (each.get(0).asText, each.get(each.size - 1).asText)
    if (name == "identity") Expressions.identity(column)
    else {
      val number = if (each.size > 2) Seq(Expressions.literal(each.get(1).asInt)) else Seq.empty
      Expressions.apply(name, number :+ Expressions.column(column): _*)
    }
  }.toArray

  /** The shard of a row, as a function of its shard key; None: the table is not sharded, or buckets move. */
  val sharding: Option[Transform] = Option(answer.get("sharding")).filterNot(_.isNull).map { found =>
    val key = found.get("columns").elements.asScala.map(name => Expressions.column(name.asText)).toSeq
    Expressions.apply(found.get("function").asText, key: _*)
  }

  /** The data files of the parts that can hold rows which a condition keeps. */
  def files(condition: String): Seq[PartFile] =
    planner.answer("files", "handle" -> handle, "where" -> condition).elements.asScala.map { file =>
      // Of a local path the scheme is given apart: it is no pattern and no URL, whatever characters it has.
      val place = file.get(0).asText
      val path = if (place.startsWith("/")) new Path("file", "", place) else new Path(place)
      new PartFile(file.get(3).asText, new FileStatus(file.get(1).asLong, false, 1, 128L << 20, file.get(2).asLong, path),
        file.get(4).asInt)
    }.toSeq

  /** Scans of this snapshot; of a read's options only `final` says how. */
  def scanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    val streamed = options.asScala.toMap
    if (options.getBoolean("final", false) && !isPlain)
      new SourceScanBuilder(
        this, "rows merged by the table's policy (final)", schema, sourceOptions + ("final" -> "true"), streamed)
    else if (otherWay.nonEmpty) new SourceScanBuilder(this, otherWay, schema, sourceOptions, streamed)
    else SnapshotScanBuilder.of(this, stream(streamed, schema, _))
  }

  /** A stream of the table by the source in Python, whichever snapshot this is; of the options, none names another table. */
  def stream(options: Map[String, String], columns: StructType, checkpoint: String): MicroBatchStream =
    scans(options, columns).build().toMicroBatchStream(checkpoint)

  /** Scans by the source in Python with all these options. */
  def scans(options: Map[String, String], columns: StructType): ScanBuilder =
    new NamedTable((options ++ tableOptions).asJava, Array.empty, columns).newScanBuilder(CaseInsensitiveStringMap.empty)

  def texts(node: JsonNode): Map[String, String] =
    node.properties.asScala.map(each => each.getKey -> each.getValue.asText).toMap
}

/**
 * A table of the catalog at one snapshot, which `loadTable` has taken: all that reads this object reads that snapshot.
 *
 * Writes are those of `format("replitree")`: tasks stage, and the driver commits one insert. Deletes and truncations are
 * entries of the log, which the planner sends; they are about the table of now, not about the snapshot.
 *
 * A statement that changes rows ([[Rewrite]]) reads the table of now, too: from its first scan on, the scans of this object
 * read what the rewrite has begun with.
 */
final class ReplitreeTable(
    planner: Planner, table: String, qualified: String, snapshot: LoadedSnapshot, loadedWith: CaseInsensitiveStringMap,
    load: CaseInsensitiveStringMap => LoadedSnapshot, setting: String => Option[String])
    extends Table with SupportsRead with SupportsWrite with SupportsDelete with SupportsMetadataColumns
    with SupportsRowLevelOperations with SupportsAtomicPartitionManagement {
  override def name(): String = qualified
  /** A table that is dropped and created again has another id, so Spark never takes one for the other. */
  override def id(): String = snapshot.tableId
  override def version(): String = snapshot.version
  override def schema(): StructType = snapshot.schema
  override def partitioning(): Array[Transform] = snapshot.partitioning
  override def properties(): util.Map[String, String] = snapshot.properties.asJava
  override def capabilities(): util.Set[TableCapability] =
    util.EnumSet.of(
      TableCapability.BATCH_READ, TableCapability.BATCH_WRITE, TableCapability.TRUNCATE, TableCapability.OVERWRITE_DYNAMIC,
      TableCapability.OVERWRITE_BY_FILTER, TableCapability.STREAMING_WRITE, TableCapability.MICRO_BATCH_READ)
  override def toString: String = s"$qualified at ${snapshot.index}"

  /** Spark 4.2 does not pass a read's options to `loadTable`: one snapshot for all uses of this object with equal ones. */
  private val others = new ConcurrentHashMap[Map[String, String], LoadedSnapshot]

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    // Spark 4.2 passes it to no catalog, so that these are not its columns: the source says what to do.
    if (ReplitreeCatalog.isFeed(options)) return snapshot.scans(options.asScala.toMap, schema)
    val state = ReplitreeCatalog.readState(options)
    val read =
      if (state != ReplitreeCatalog.readState(loadedWith)) others.computeIfAbsent(state, _ => load(options))
      else rewrite.filter(_.isOpen).fold(snapshot)(_.begun.snapshot)
    read.scanBuilder(options)
  }

  override def metadataColumns(): Array[MetadataColumn] =
    if (PartColumn.isTaken(schema)) Array.empty else Array(PartColumn)

  /** Of the statement that changes rows of this object's table. */
  @volatile private var rewrite: Option[Rewrite] = None

  /** Spark asks for one also when the statement becomes a delete by condition: nothing is begun here. */
  override def newRowLevelOperationBuilder(info: RowLevelOperationInfo): RowLevelOperationBuilder = {
    if (PartColumn.isTaken(schema))
      throw new CatalogError(s"rows of $qualified can't be rewritten by Spark: it has a column ${PartColumn.Name} of its own")
    val made = rewrite.filter(_.isOpen).getOrElse(new Rewrite(planner, table, setting("through")))
    rewrite = Some(made)
    () => new RewriteOperation(made, info.command, setting("isolation").orNull)
  }

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    new TableWriteBuilder(info, snapshot.tableOptions)

  override def canDeleteWhere(filters: Array[Filter]): Boolean = Conditions.whole(filters).isDefined

  /** Spark has asked `canDeleteWhere` before. */
  override def deleteWhere(filters: Array[Filter]): Unit = change("delete", "where" -> Conditions.whole(filters).get)

  // --- partitions: each transform is a column of theirs ---

  override def partitionSchema(): StructType = snapshot.partitionSchema

  override def listPartitionIdentifiers(names: Array[String], values: InternalRow): Array[InternalRow] =
    AnswerRows.of(
      planner.answer("partitions", "handle" -> snapshot.handle, "names" -> names, "values" -> texts(values)), partitionSchema())

  override def dropPartitions(values: Array[InternalRow]): Boolean = {
    change("drop_partitions", "handle" -> snapshot.handle, "partitions" -> values.map(texts))
    true
  }
  override def truncatePartition(values: InternalRow): Boolean = dropPartitions(Array(values))
  override def truncatePartitions(values: Array[InternalRow]): Boolean = dropPartitions(values)
  override def createPartitions(values: Array[InternalRow], properties: Array[util.Map[String, String]]): Unit =
    throw new CatalogError("a partition is there as long as it has rows: INSERT them")
  override def loadPartitionMetadata(values: InternalRow): util.Map[String, String] = util.Map.of()
  override def replacePartitionMetadata(values: InternalRow, properties: util.Map[String, String]): Unit = ()

  private def texts(values: InternalRow) =
    Array.tabulate(values.numFields)(at => if (values.isNullAt(at)) null else values.getString(at))

  override def truncateTable(): Boolean = { change("truncate"); true }

  private def change(operation: String, fields: (String, Any)*): Unit =
    planner.answer(operation, fields :+ ("table" -> table): _*)
}

/**
 * A write by `format("replitree")`: its tasks, and its commit. The rows take the place of all that are in the table, or, when
 * Spark overwrites partitions, of those in the partitions that they belong to.
 */
final class TableWriteBuilder(info: LogicalWriteInfo, table: Map[String, String])
    extends SupportsOverwrite with SupportsDynamicOverwrite {
  private var mode: Option[String] = None

  override def truncate(): WriteBuilder = { mode = Some("static"); this }
  override def overwriteDynamicPartitions(): WriteBuilder = { mode = Some("dynamic"); this }
  override def overwrite(filters: Array[Filter]): WriteBuilder = throw new CatalogError(
    "rows can't take the place of those that a condition names: set spark.sql.sources.partitionOverwriteMode to dynamic, which "
      + "replaces the partitions that the new rows belong to, or DELETE before the INSERT")

  override def build(): Write = {
    // The session may say otherwise.
    val chosen = mode.map("partitionOverwriteMode" -> _)
    val options = new CaseInsensitiveStringMap((table ++ info.options.asCaseSensitiveMap.asScala ++ chosen).asJava)
    val write = new NamedTable(options, Array.empty, info.schema)
      .newWriteBuilder(LogicalWriteInfoImpl(info.queryId, info.schema, options))
    (if (mode.isEmpty) write else write.asInstanceOf[SupportsTruncate].truncate()).build()
  }
}
