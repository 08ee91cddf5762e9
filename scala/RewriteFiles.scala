package io.replitree.spark

import java.io.{File, FileInputStream, OutputStream}
import java.util.zip.{CRC32, CheckedInputStream}

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.mapreduce.{Job, TaskAttemptID, TaskID, TaskType}
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl
import org.apache.spark.SparkFiles
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic
import org.apache.spark.sql.connector.distributions.{Distribution, Distributions}
import org.apache.spark.sql.connector.expressions.{Expressions, NullOrdering, SortDirection, SortOrder}
import org.apache.spark.sql.connector.write.{BatchWrite, DataWriter, DataWriterFactory, PhysicalWriteInfo}
import org.apache.spark.sql.connector.write.{RequiresDistributionAndOrdering, WriteBuilder, WriterCommitMessage}
import org.apache.spark.sql.execution.datasources.{OutputWriter, OutputWriterFactory}
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.unsafe.types.UTF8String
import org.apache.spark.util.SerializableConfiguration

/**
 * The files of one task attempt, each as a part, "" for new rows, and a place; those of the attempts that Spark chose count.
 *
 * A place is a path in the statement's folder, or, of a file that was sent to the replica, its name among those of the upload.
 * `told` is what became of files that were to go into the table's object store; "" when there were none.
 */
final class WrittenFiles(val files: Array[Array[String]], val told: String) extends WriterCommitMessage

/**
 * Writes the results of a statement as Parquet files, by Spark's own writer, and commits them.
 *
 * Spark brings the rows of each part together, so that a result is one file in most cases, and sorts them. Each task attempt
 * has files of its own, one after the other. Files of attempts that do not count stay in the folder, and go with it.
 */
final class RewriteWrite(begun: BegunRewrite, statement: String, isolation: String)
    extends WriteBuilder with RequiresDistributionAndOrdering with BatchWrite {
  override def build(): RewriteWrite = this
  override def toBatch(): RewriteWrite = this
  override def description(): String = s"rewrite of parts by $statement"

  override def distributionStrictlyRequired(): Boolean = false
  override def requiredDistribution(): Distribution = Distributions.clustered(Array(PartColumn.reference))
  override def requiredOrdering(): Array[SortOrder] =
    (PartColumn.Name +: begun.orderBy)
      .map(name => Expressions.sort(Expressions.column(name), SortDirection.ASCENDING, NullOrdering.NULLS_FIRST)).toArray

  override def createBatchWriterFactory(info: PhysicalWriteInfo): DataWriterFactory = {
    val spark = SparkSession.active.asInstanceOf[classic.SparkSession]
    val job = Job.getInstance(spark.sessionState.newHadoopConfWithOptions(begun.writerOptions))
    val writers = new ParquetFileFormat().prepareWrite(spark, job, begun.writerOptions, begun.stored)
    // How files of a table must be written, whatever the session says.
    job.getConfiguration.set(SQLConf.PARQUET_OUTPUT_TIMESTAMP_TYPE.key, "TIMESTAMP_MICROS")
    job.getConfiguration.set(SQLConf.PARQUET_WRITE_LEGACY_FORMAT.key, "false")
    new RowWriterFactory(
      writers, new SerializableConfiguration(job.getConfiguration), begun.stored, begun.folder, begun.upload,
      begun.store)
  }

  override def commit(messages: Array[WriterCommitMessage]): Unit =
    begun.commit(statement, messages.toSeq.map(_.asInstanceOf[WrittenFiles]), isolation)

  /** Nothing: the rewrite ends with Spark's execution. */
  override def abort(messages: Array[WriterCommitMessage]): Unit = ()
}

/** `upload` says where a task sends its files that does not see the folder (`BegunRewrite.upload`). */
final class RowWriterFactory(
    writers: OutputWriterFactory, conf: SerializableConfiguration, schema: StructType, folder: String, upload: Array[String],
    store: StoreFiles)
    extends DataWriterFactory {
  override def createWriter(partition: Int, task: Long): DataWriter[InternalRow] = {
    val sees = new File(folder).canWrite
    // Else in the executor's own folder, of which Spark's cluster manager takes care.
    val here = if (sees) folder else new File(SparkFiles.getRootDirectory()).getAbsolutePath
    new RowWriter(writers, conf.value, schema, here, if (sees) null else upload, store, task)
  }
}

final class RowWriter(
    writers: OutputWriterFactory, conf: Configuration, schema: StructType, folder: String, upload: Array[String],
    store: StoreFiles, task: Long)
    extends DataWriter[InternalRow] {
  private val context =
    new TaskAttemptContextImpl(conf, new TaskAttemptID(new TaskID("replitree", 0, TaskType.MAP, task.toInt), 0))
  private val written = mutable.ArrayBuffer.empty[Array[String]]
  private var part: UTF8String = _
  private var file: OutputWriter = _

  /** A row of a part, as it is now or changed. */
  override def write(metadata: InternalRow, row: InternalRow): Unit =
    put(if (metadata.isNullAt(0)) UTF8String.EMPTY_UTF8 else metadata.getUTF8String(0), row)

  /** A new row. */
  override def write(row: InternalRow): Unit = put(UTF8String.EMPTY_UTF8, row)

  private def put(of: UTF8String, row: InternalRow): Unit = {
    if (of != part) {
      close()
      part = of.copy()
      open()
    }
    file.write(row)
  }

  private def open(): Unit = {
    // Of a local path the scheme is given apart: it is no pattern and no URL, whatever characters it has.
    val path = new Path("file", "", s"$folder/rows-$task-${written.size}.parquet")
    written += Array(part.toString, path.toUri.getPath)
    // Not the session's settings: one of them shifts old dates.
    val settings = new SQLConf
    settings.setConfString(SQLConf.PARQUET_REBASE_MODE_IN_WRITE.key, "CORRECTED")
    file = SQLConf.withExistingConf(settings)(writers.newInstance(path.toString, schema, context))
  }

  override def commit(): WriterCommitMessage = {
    close()
    if (store == null || written.isEmpty) return new WrittenFiles(written.toArray, "")
    // All at once: the replica is asked for names once.
    val (told, isPut) = store.put(written.toArray)
    if (isPut) return new WrittenFiles(Array.empty, told)
    if (upload != null) written.indices.foreach(send)
    new WrittenFiles(written.toArray, told)
  }

  /** What is left here goes now: of a table in a store all files of the task wait for its commit. */
  override def abort(): Unit = {
    close()
    if (store != null) for (entry <- written if entry(1).startsWith("/")) new File(entry(1)).delete()
  }

  override def close(): Unit = if (file != null) {
    file.close()
    file = null
    if (upload != null && store == null) send(written.size - 1)
  }

  /** Sends a file to the replica, which compares its checksum, and removes it. */
  private def send(number: Int): Unit = {
    val entry = written(number)
    val made = new File(entry(1))
    // A sum of Java's own: the one of the replicas' manifests has no class in Spark.
    val sum = new CheckedInputStream(new FileInputStream(made), new CRC32)
    try sum.transferTo(OutputStream.nullOutputStream) finally sum.close()
    entry(1) = s"task-$task/all/data-$number.parquet"
    val query = s"crc32=${sum.getChecksum.getValue}"
    PartInput.ask("PUT", upload(0), s"${upload(1)}/tasks/${entry(1)}", query, upload(2), upload(3), 200, null, made).close()
    made.delete()
  }
}
