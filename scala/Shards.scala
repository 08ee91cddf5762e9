package io.replitree.spark

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.functions.{BoundFunction, UnboundFunction}
import org.apache.spark.sql.connector.expressions.{Expression, Transform}
import org.apache.spark.sql.connector.read.{HasPartitionKey, InputPartition, SupportsReportPartitioning}
import org.apache.spark.sql.connector.read.partitioning.{KeyGroupedPartitioning, Partitioning}
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream
import org.apache.spark.sql.execution.datasources.{FilePartition, PartitionedFile}
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScan
import org.apache.spark.sql.types.{DataType, DataTypes, StructType}

/**
 * The scan of a sharded table, which tells Spark which shard each of its partitions is of.
 *
 * Spark joins two such scans shard by shard, without a shuffle, when both have the same function of the columns that are
 * joined. For anything else it reads the partitions one by one, as it does those of another table.
 */
final class ShardedScan(scan: ParquetScan, streams: String => MicroBatchStream, files: SnapshotFiles, sharding: Transform)
    extends SnapshotScan(scan, streams) with SupportsReportPartitioning {
  @transient private lazy val ofShards: Array[InputPartition] = {
    val shards = files.shards
    // Spark packs small files of any shards into one partition.
    super.planInputPartitions().flatMap { packed =>
      packed.asInstanceOf[FilePartition].files.groupBy(file => shards(file.toPath.toString)).toSeq.sortBy(_._1)
    }.zipWithIndex.map { case ((shard, some), index) => new ShardFiles(index, some, shard) }
  }

  override def planInputPartitions(): Array[InputPartition] = ofShards
  override def outputPartitioning(): Partitioning = new KeyGroupedPartitioning(Array[Expression](sharding), ofShards.length)
}

/** Files of one shard. */
final class ShardFiles(index: Int, files: Array[PartitionedFile], shard: Int)
    extends FilePartition(index, files) with HasPartitionKey {
  override def partitionKey(): InternalRow = InternalRow(shard)
}

/**
 * The function of a shard key that gives a row's shard: two of one name give equal keys the same shard.
 *
 * Spark compares it, and computes it for no row.
 */
final class ShardFunction(override val name: String, types: Array[DataType]) extends UnboundFunction with BoundFunction {
  override def bind(key: StructType): BoundFunction = new ShardFunction(name, key.fields.map(_.dataType))
  override def description(): String = "the shard that has a row of a sharded table; for joins without a shuffle"
  override def inputTypes(): Array[DataType] = types
  override def resultType(): DataType = DataTypes.IntegerType
  override def canonicalName(): String = s"replitree.$name"
}
