package io.replitree.spark

import java.util

import org.apache.spark.sql.connector.catalog.{SupportsRead, SupportsWrite, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, LogicalWriteInfoImpl, WriteBuilder}
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, PythonTable}
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * `format("replitree")` where this jar is. What the catalog reads of a table, it reads for this source, too, by Spark's own scan
 * ([[ReplitreeCatalog.named]]); other reads, and all writes, are those of the source in Python.
 *
 * `CREATE TABLE t USING replitree OPTIONS (url '…', table 'events')` lets Spark's catalog name a table of a cluster. Spark
 * keeps the options as properties, `option.<name>`, and hands the properties to a source; its Python sources forget them.
 *
 * Spark makes an object of every source of every jar before it takes one: only methods name classes that another Spark may
 * lack.
 */
final class NamedSource extends TableProvider with DataSourceRegister {
  /** Of a read that has no schema of its own, for which Spark asks first. */
  private var read: NamedTable = _

  /** Where Spark has no such class, this source has another name, and Spark finds the one in Python by itself. */
  override def shortName(): String =
    try { Class.forName("org.apache.spark.sql.execution.datasources.v2.python.PythonTable"); "replitree" }
    catch { case _: ClassNotFoundException => "replitree-named" }

  override def supportsExternalMetadata(): Boolean = true
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = {
    read = new NamedTable(options, Array.empty, null)
    read.schema
  }

  override def getTable(schema: StructType, partitioning: Array[Transform], properties: util.Map[String, String]): Table =
    // Only a catalog says which source a table has.
    if (properties.containsKey("provider")) new NamedTable(properties, partitioning, null)
    else if (read == null) new NamedTable(properties, partitioning, schema)
    else read
}

/**
 * The table of a cluster that options name, as it is when Spark first asks for its columns; they are the options of a read or a
 * write, or properties of a table in Spark's own catalog. `said` are the columns
 * that a read or a write names itself, or null.
 */
final class NamedTable(override val properties: util.Map[String, String], partitions: Array[Transform], said: StructType)
    extends Table with SupportsRead with SupportsWrite {
  private val isOfCatalog = properties.containsKey("provider")

  private def options(others: util.Map[String, String]) = {
    val all = new util.HashMap[String, String]
    properties.forEach { (key, value) =>
      if (!isOfCatalog) all.put(key, value) else if (key.startsWith("option.")) all.put(key.drop(7), value)
    }
    all.putAll(others)
    new CaseInsensitiveStringMap(all)
  }

  /** Not before Spark asks for columns: CREATE TABLE does, and DROP TABLE of a table that can't be read does not. */
  private lazy val snapshot = {
    val own = options(util.Map.of())
    if (isOfCatalog && (!own.containsKey("table") || partitions.nonEmpty)) throw new CatalogError(
      "in Spark's own catalog USING replitree names a table that a cluster has: CREATE TABLE … USING replitree OPTIONS (url '…', "
        + "table '…'), without columns and partitions. For a new table of the cluster say USE replitree.default before, or "
        + "CREATE TABLE replitree.default.<name>; docs/sql.md has the settings of that catalog")
    if (said == null) ReplitreeCatalog.named(own) else None
  }
  private lazy val python = {
    val source = new PythonDataSourceV2
    source.setShortName("replitree")
    val columns =
      if (said != null) said else snapshot.fold(source.inferSchema(options(util.Map.of())))(_.schema)
    new PythonTable(source, "replitree", columns)
  }

  override def name(): String = "replitree"
  override def schema(): StructType = python.schema
  override def capabilities(): util.Set[TableCapability] = python.capabilities

  /** A read of a table in Spark's catalog may have options of its own, and reads another snapshot then. */
  override def newScanBuilder(others: CaseInsensitiveStringMap): ScanBuilder = {
    val all = options(others)
    if (isOfCatalog && !others.isEmpty) new NamedTable(all, Array.empty, null).newScanBuilder(all)
    else snapshot.fold(python.newScanBuilder(all))(_.scanBuilder(all))
  }

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    python.newWriteBuilder(LogicalWriteInfoImpl(info.queryId, info.schema, options(info.options)))
}
