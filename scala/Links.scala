package io.replitree.spark

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScanBuilder
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Whether the Spark of this session has the internal classes that reads of tables need.
 *
 * It stands apart from the catalog, whose methods name classes that Spark 4.2 has not: Spark never calls those there, but
 * Py4J looks at all methods of a class that Python calls.
 */
object Links {
  /** Does nothing when it has them; otherwise it throws what is missing. */
  def check(): Unit = {
    classOf[ParquetScanBuilder].getConstructor(
      classOf[SparkSession], classOf[PartitioningAwareFileIndex], classOf[StructType], classOf[StructType],
      classOf[CaseInsensitiveStringMap])
    for (name <- Seq("ReplitreeCatalog", "ReplitreeTable", "SnapshotFiles", "SnapshotScan", "SourceScan"))
      Class.forName(s"io.replitree.spark.$name")
  }

  /** `java -cp <jars of a Spark>:<this jar> io.replitree.spark.Links` ends with an error when something is missing there. */
  def main(arguments: Array[String]): Unit = check()
}
