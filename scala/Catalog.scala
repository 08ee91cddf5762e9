package io.replitree.spark

import java.util
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.catalyst.analysis.{NoSuchFunctionException, NoSuchNamespaceException, NoSuchTableException}
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException
import org.apache.spark.sql.connector.catalog.{Changelog, ChangelogContext, ChangelogRange}
import org.apache.spark.sql.connector.catalog.{Column, FunctionCatalog, Identifier, NamespaceChange, ProcedureCatalog, SupportsNamespaces}
import org.apache.spark.sql.connector.catalog.{Table, TableCatalog, TableCatalogCapability, TableChange, TableContext, TimeTravel}
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * The tables of a cluster as a catalog of Spark: `spark.sql.catalog.replitree=io.replitree.spark.ReplitreeCatalog`.
 *
 * Guarantees: `loadTable` takes one snapshot, and everything that is planned with the table it returns reads that one.
 * Spark loads tables again for each execution, and uses one of them for all uses in a query.
 *
 * Settings below `spark.sql.catalog.<name>.`: `url` (otherwise REPLITREE_URL, then REPLITREE_DIR), `tokenFile` (otherwise
 * REPLITREE_TOKEN_FILE), `level` of reads without one of their own, `isolation` of statements that change rows, and their
 * way `through` the table's object store or a replica, `python` that has replitree. A token itself is no setting.
 *
 * Absent on purpose: namespaces other than `default`.
 */
class ReplitreeCatalog extends TableCatalog with SupportsNamespaces with ProcedureCatalog with FunctionCatalog {
  private var known = "replitree"
  private var level: Option[String] = None
  private var python = "python3"
  private var settings = Map.empty[String, String]
  private lazy val planner = ReplitreeCatalog.planner(python, settings)
  /** The snapshot of each table that was loaded last: the planner does not describe it again. */
  private val newest = new ConcurrentHashMap[String, LoadedSnapshot]

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = {
    known = name
    level = Option(options.get("level"))
    val conf = SparkSession.active.sparkContext.getConf
    python = Option(options.get("python"))
      .orElse(conf.getOption("spark.pyspark.python"))
      .orElse(sys.env.get("PYSPARK_PYTHON"))
      .getOrElse("python3")
    val chosen = Seq("url", "tokenFile").flatMap(key => Option(options.get(key)).map(key -> _)).toMap
    settings = chosen + ("master" -> conf.get("spark.master", ""))
  }

  override def name(): String = known
  override def defaultNamespace(): Array[String] = ReplitreeCatalog.Namespace

  /** What the session says of statements that change rows, anew for each: `isolation` and `through`. */
  private def setting(name: String): Option[String] = SparkSession.active.conf.getOption(s"spark.sql.catalog.$known.$name")

  /** What a read's options say about the snapshot: Spark hands them to `loadTable`, and shares a snapshot among equal ones. */
  override def tableStateOptionKeys(): util.Set[String] =
    (ReplitreeCatalog.ReadOptions ++ Seq("readChangeFeed", "readChangeData")).asJava

  /** Of columns in CREATE TABLE; ALTER TABLE has them without. */
  override def capabilities(): util.Set[TableCatalogCapability] =
    util.EnumSet.of(
      TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE,
      // So that Spark asks, and `createTable` says what there is instead.
      TableCatalogCapability.SUPPORTS_CREATE_TABLE_WITH_GENERATED_COLUMNS,
      TableCatalogCapability.SUPPORTS_CREATE_TABLE_WITH_IDENTITY_COLUMNS)

  // --- tables ---

  override def listTables(namespace: Array[String]): Array[Identifier] = {
    check(namespace)
    planner.answer("tables").elements.asScala.map(name => Identifier.of(ReplitreeCatalog.Namespace, name.asText)).toArray
  }

  override def loadTable(table: Identifier): Table = load(table, CaseInsensitiveStringMap.empty(), None)

  override def loadTable(table: Identifier, version: String): Table =
    load(table, CaseInsensitiveStringMap.empty(), Some(version))

  override def loadTable(table: Identifier, timestamp: Long): Table =
    load(table, CaseInsensitiveStringMap.empty(), None, Some(timestamp))

  override def loadTable(table: Identifier, context: TableContext, options: CaseInsensitiveStringMap): Table =
    if (context.timeTravel.isEmpty) load(table, options, None)
    else context.timeTravel.get match {
      case at: TimeTravel.AsOfVersion => load(table, options, Some(at.version))
      case at: TimeTravel.AsOfTimestamp => load(table, options, None, Some(at.micros))
    }

  /** Loads a table as it is, as a version of it, or as it was at a time: microseconds since 1970. */
  private def load(
      table: Identifier, options: CaseInsensitiveStringMap, version: Option[String], timestamp: Option[Long] = None): Table = {
    if (isHistory(table)) {
      if (version.isDefined || timestamp.isDefined)
        throw new CatalogError("the history of a table is that of now: leave VERSION AS OF and TIMESTAMP AS OF out")
      val name = table.namespace.last
      if (!tableExists(Identifier.of(ReplitreeCatalog.Namespace, name))) throw new NoSuchTableException(table)
      return new AnswerRows(
        s"$known.default.$name.history", AnswerRows.History, () => planner.answer("history", "table" -> name))
    }
    if (!isDefault(table.namespace)) throw new NoSuchTableException(table)
    def snapshot(options: CaseInsensitiveStringMap): LoadedSnapshot = {
      val known = newest.get(table.name)
      val answer = try planner.answer(
        "load",
        "table" -> table.name,
        "known" -> Option(known).map(_.handle).orNull,
        "version" -> version.orNull,
        "timestamp" -> timestamp.map(_.toString).orNull,
        "options" -> (level.map("level" -> _).toMap ++ ReplitreeCatalog.readState(options)).asJava)
      catch {
        case error: CatalogError if error.kind == "TableNotFound" => throw new NoSuchTableException(table)
      }
      if (known != null && answer.get("handle").asText == known.handle) known
      else {
        val loaded = new LoadedSnapshot(planner, table.name, answer)
        newest.put(table.name, loaded)
        loaded
      }
    }
    val qualified = s"$known.default.${table.name}"
    if (ReplitreeCatalog.isFeed(options) && version.isEmpty && timestamp.isEmpty)
      new ChangeFeed(snapshot(CaseInsensitiveStringMap.empty), qualified, Map.empty)
    else new ReplitreeTable(planner, table.name, qualified, snapshot(options), options, snapshot, setting)
  }

  override def loadChangelog(table: Identifier, context: ChangelogContext, options: CaseInsensitiveStringMap): Changelog = {
    // A text is a version, and a number a time. Without a range Spark does not say whether its ends are included.
    val ends: Array[Any] = context.range match {
      case at: ChangelogRange.VersionRange =>
        Array(at.startingVersion, at.endingVersion.orElse(null), at.startingBoundInclusive, at.endingBoundInclusive)
      case at: ChangelogRange.TimestampRange =>
        Array(at.startingTimestamp, at.endingTimestamp.orElse(null), at.startingBoundInclusive, at.endingBoundInclusive)
      case _ => Array(null, null, true, true)
    }
    load(table, new CaseInsensitiveStringMap(util.Map.of("readChangeFeed", "true")), None) match {
      case feed: ChangeFeed => feed.within(planner.answer(
        "range",
        "table" -> table.name,
        "ends" -> ends,
        "mode" -> context.deduplicationMode.value,
        "computes" -> context.computeUpdates))
      case _ => throw new NoSuchTableException(table)
    }
  }

  /** Looks for the table's name only: `loadTable` takes a snapshot. */
  override def tableExists(table: Identifier): Boolean =
    isDefault(table.namespace) && listTables(table.namespace).exists(_.name == table.name)

  override def createTable(
      table: Identifier, columns: Array[Column], partitions: Array[Transform], properties: util.Map[String, String]): Table = {
    check(table.namespace)
    for (column <- columns if column.generationExpression != null || column.identityColumnSpec != null)
      throw new CatalogError(
        s"column ${column.name} can't be generated: a partition is a transform of a column, PARTITIONED BY (days(at)), and "
          + "writers share no counter; give the values")
    val described = columns.map { column =>
      quoted(column.name) + " " + column.dataType.sql + (if (column.nullable) "" else " NOT NULL")
    }
    val defaults = columns.filter(_.defaultValue != null).map(column => column.name -> column.defaultValue.getSql).toMap
    try planner.answer(
      "create",
      "table" -> table.name,
      "columns" -> described.mkString(", "),
      "defaults" -> defaults.asJava,
      "partition_by" -> partitions.map(_.describe),
      "properties" -> properties)
    catch {
      case error: CatalogError if error.kind == "TableExists" => throw new TableAlreadyExistsException(table)
    }
    loadTable(table)
  }

  override def dropTable(table: Identifier): Boolean = tableExists(table) && {
    planner.answer("drop", "table" -> table.name)
    true
  }

  override def alterTable(table: Identifier, changes: TableChange*): Table = {
    val properties = new util.HashMap[String, String]
    val text = changes.map {
      case set: TableChange.SetProperty => properties.put(set.property, set.value); ""
      case removed: TableChange.RemoveProperty => properties.put(removed.property, ""); ""
      case add: TableChange.AddColumn if add.comment == null =>
        val default = if (add.defaultValue == null) "" else s" DEFAULT ${add.defaultValue.getSql}"
        val place = add.position match {
          case null => ""
          case after: TableChange.After => s" AFTER ${quoted(after.column)}"
          case first => s" $first"
        }
        s"ADD COLUMN ${path(add.fieldNames)} ${add.dataType.sql}${if (add.isNullable) "" else " NOT NULL"}$default$place"
      case drop: TableChange.DeleteColumn => s"DROP COLUMN ${path(drop.fieldNames)}"
      case rename: TableChange.RenameColumn =>
        s"RENAME COLUMN ${path(rename.fieldNames)} TO ${quoted(rename.newName)}"
      case widen: TableChange.UpdateColumnType =>
        s"ALTER COLUMN ${path(widen.fieldNames)} TYPE ${widen.newDataType.sql}"
      case change: TableChange.UpdateColumnDefaultValue =>
        val default = change.newCurrentDefault
        s"ALTER COLUMN ${path(change.fieldNames)} ${if (default == null) "DROP DEFAULT" else s"SET DEFAULT ${default.getSql}"}"
      case change: TableChange.UpdateColumnNullability =>
        s"ALTER COLUMN ${path(change.fieldNames)} ${if (change.nullable) "DROP" else "SET"} NOT NULL"
      case other => throw new CatalogError(
        s"${other.getClass.getSimpleName} is not supported by the catalog $known: it adds columns without comments, drops, "
          + "renames and widens them, and changes their defaults; for another order key fill another table")
    }
    if (!tableExists(table)) throw new NoSuchTableException(table)
    planner.answer("alter", "table" -> table.name, "sql" -> text.mkString(", "), "properties" -> properties)
    loadTable(table)
  }

  override def renameTable(from: Identifier, to: Identifier): Unit = throw unsupported("ALTER TABLE … RENAME TO")

  private def quoted(name: String) = "`" + name.replace("`", "``") + "`"
  private def path(names: Array[String]) = names.map(quoted).mkString(".")

  // --- procedures: below the catalog itself, and below its namespace ---

  override def listProcedures(namespace: Array[String]): Array[Identifier] = {
    if (namespace.nonEmpty) check(namespace)
    planner.answer("procedures").elements.asScala.map(name => Identifier.of(namespace, name.asText)).toArray
  }

  override def loadProcedure(procedure: Identifier): UnboundProcedure = {
    if (procedure.namespace.nonEmpty) check(procedure.namespace)
    new PlannerProcedure(planner, planner.answer("procedure", "procedure" -> procedure.name))
  }

  // --- functions: those that Spark compares to see that two tables are sharded in one way ---

  override def listFunctions(namespace: Array[String]): Array[Identifier] = {
    check(namespace)
    Array.empty
  }
  override def loadFunction(function: Identifier): UnboundFunction =
    if (function.namespace.isEmpty && function.name.startsWith("shard_")) new ShardFunction(function.name, Array.empty)
    else throw new NoSuchFunctionException(function)

  // --- namespaces ---

  override def listNamespaces(): Array[Array[String]] = Array(ReplitreeCatalog.Namespace)
  override def listNamespaces(parent: Array[String]): Array[Array[String]] =
    if (parent.isEmpty) listNamespaces() else { check(parent); Array.empty }
  override def namespaceExists(namespace: Array[String]): Boolean = isDefault(namespace)
  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] = {
    check(namespace)
    util.Map.of(SupportsNamespaces.PROP_COMMENT, "all tables of the cluster")
  }
  override def createNamespace(namespace: Array[String], metadata: util.Map[String, String]): Unit =
    throw unsupported("CREATE NAMESPACE")
  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit =
    throw unsupported("ALTER NAMESPACE")
  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean =
    throw unsupported("DROP NAMESPACE")

  /** `default.events`.`history` is the log of the table `default.events`. */
  private def isHistory(table: Identifier) =
    table.name == "history" && table.namespace.length == 2 && isDefault(table.namespace.init)
  private def isDefault(namespace: Array[String]) = namespace.sameElements(ReplitreeCatalog.Namespace)
  private def check(namespace: Array[String]): Unit =
    if (!isDefault(namespace)) throw new NoSuchNamespaceException(namespace)
  private def unsupported(statement: String) = new UnsupportedOperationException(
    s"$statement is not supported by the catalog $known yet: use the Python client, or the command replitree")
}

object ReplitreeCatalog {
  private val planners = new ConcurrentHashMap[(String, Map[String, String]), Planner]

  /** The planner of these settings: one for all sessions of this JVM. */
  def planner(python: String, settings: Map[String, String]): Planner =
    planners.computeIfAbsent((python, settings), _ => new Planner(python, settings))

  private val Namespace = Array("default")

  /** The options that say which rows a read has. */
  private val ReadOptions = Set("level", "minIndex", "asOf", "final", "timeout")

  def isFeed(options: CaseInsensitiveStringMap): Boolean =
    options.getBoolean("readChangeFeed", options.getBoolean("readChangeData", false))

  /** The snapshot that options of `format("replitree")` say, where the catalog reads it as they say. */
  def named(options: CaseInsensitiveStringMap): Option[LoadedSnapshot] = {
    val catalog = new ReplitreeCatalog
    try {
      Links.check()
      catalog.initialize("replitree", options)
      val answer = catalog.planner.answer("named", "options" -> options)
      if (answer.isNull) None else Some(new LoadedSnapshot(catalog.planner, answer.get("table").asText, answer))
    } catch {
      // Spark's workers may run another Python, which has replitree.
      case error: CatalogError if error.kind.isEmpty => None
      case _: LinkageError | _: ReflectiveOperationException => None
    }
  }

  def readState(options: CaseInsensitiveStringMap): Map[String, String] =
    ReadOptions.flatMap(name => Option(options.get(name)).map(value => name.toLowerCase -> value)).toMap
}
