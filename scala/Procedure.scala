package io.replitree.spark

import java.util
import java.util.Collections

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.procedures.{BoundProcedure, ProcedureParameter, UnboundProcedure}
import org.apache.spark.sql.connector.read.Scan
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.unsafe.types.UTF8String

/** A procedure that the planner has described, and runs: `CALL replitree.optimize('events')`. */
final class PlannerProcedure(planner: Planner, described: JsonNode) extends UnboundProcedure with BoundProcedure {
  override def name(): String = described.get("name").asText
  override def description(): String = described.get("description").asText
  override def bind(arguments: StructType): BoundProcedure = this
  override def isDeterministic(): Boolean = false

  override def parameters(): Array[ProcedureParameter] = described.get("parameters").elements.asScala.map { each =>
    val parameter = ProcedureParameter.in(each.get(0).asText, DataType.fromDDL(each.get(1).asText))
    if (each.get(2).isNull) parameter.build() else parameter.defaultValue(each.get(2).asText).build()
  }.toArray

  /** Once: a plan may look at its rows again. */
  override def call(values: InternalRow): util.Iterator[Scan] = {
    val arguments = values.toSeq(parameters().map(_.dataType).toSeq).map {
      case text: UTF8String => text.toString
      case other => other
    }
    val rows = planner.answer("call", "procedure" -> name(), "arguments" -> arguments.toArray)
    Collections.singleton[Scan](
      new AnswerRows(name(), StructType.fromDDL(described.get("columns").asText), () => rows)).iterator
  }
}
