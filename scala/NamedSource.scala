package io.replitree.spark

import java.util

import org.apache.spark.sql.connector.catalog.{Column, SupportsRead, SupportsWrite, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, LogicalWriteInfoImpl, WriteBuilder}
import org.apache.spark.sql.execution.datasources.v2.python.{PythonDataSourceV2, PythonTable}
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * `format("replitree")` where this jar is: the source in Python, whose tables in Spark's own catalog have their options.
 *
 * `CREATE TABLE t USING replitree OPTIONS (url '…', table 'events')` lets Spark's catalog name a table of a cluster. Spark
 * keeps the options as properties, `option.<name>`, and hands the properties to a source; its Python sources forget them.
 *
 * Spark makes an object of every source of every jar before it takes one: only methods name classes that another Spark may
 * lack.
 */
final class NamedSource extends TableProvider with DataSourceRegister {
  lazy val python: PythonDataSourceV2 = {
    val made = new PythonDataSourceV2
    made.setShortName("replitree")
    made
  }

  /** Where Spark has no such class, this source has another name, and Spark finds the one in Python by itself. */
  override def shortName(): String =
    try { Class.forName("org.apache.spark.sql.execution.datasources.v2.python.PythonTable"); "replitree" }
    catch { case _: ClassNotFoundException => "replitree-named" }

  override def supportsExternalMetadata(): Boolean = true
  override def inferSchema(options: CaseInsensitiveStringMap): StructType =
    if (isOfCatalog(options)) new NamedTable(options, Array.empty).schema else python.inferSchema(options)

  override def getTable(schema: StructType, partitioning: Array[Transform], properties: util.Map[String, String]): Table =
    if (isOfCatalog(properties)) new NamedTable(properties, partitioning)
    else python.getTable(schema, partitioning, properties)

  /** Only a catalog says which source a table has. */
  private def isOfCatalog(properties: util.Map[String, String]) = properties.containsKey("provider")
}

/** A table in Spark's own catalog: its columns and its rows are those of the table that the options name, as it is now. */
final class NamedTable(override val properties: util.Map[String, String], partitions: Array[Transform])
    extends Table with SupportsRead with SupportsWrite {
  private def options(others: util.Map[String, String]) = {
    val all = new util.HashMap[String, String]
    properties.forEach((key, value) => if (key.startsWith("option.")) all.put(key.drop(7), value))
    all.putAll(others)
    new CaseInsensitiveStringMap(all)
  }

  /** Not before Spark asks for columns: CREATE TABLE does, and DROP TABLE of a table that can't be read does not. */
  private lazy val table = {
    if (!options(util.Map.of()).containsKey("table") || partitions.nonEmpty) throw new CatalogError(
      "in Spark's own catalog USING replitree names a table that a cluster has: CREATE TABLE … USING replitree OPTIONS (url '…', "
        + "table '…'), without columns and partitions. For a new table of the cluster say USE replitree.default before, or "
        + "CREATE TABLE replitree.default.<name>; docs/sql.md has the settings of that catalog")
    over(util.Map.of())
  }

  private def over(others: util.Map[String, String]) = {
    val source = new NamedSource().python
    new PythonTable(source, "replitree", source.inferSchema(options(others)))
  }

  override def name(): String = "replitree"
  override def columns(): Array[Column] = table.columns
  override def schema(): StructType = table.schema
  override def capabilities(): util.Set[TableCapability] = table.capabilities

  /** A source in Python keeps the options that it was made with: a read with some of its own has another one. */
  override def newScanBuilder(others: CaseInsensitiveStringMap): ScanBuilder =
    (if (others.isEmpty) table else over(others)).newScanBuilder(options(others))

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder =
    table.newWriteBuilder(LogicalWriteInfoImpl(info.queryId, info.schema, options(info.options)))
}
