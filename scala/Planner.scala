package io.replitree.spark

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.AnalysisException

/**
 * An error that a user of SQL reads: PySpark shows its message without the JVM's stack. `kind` is the class of replitree's error
 * behind it; "" when there is none.
 */
final class CatalogError(text: String, val kind: String) extends AnalysisException(text, None, None, None, None, Map.empty, Array.empty) {
  def this(text: String) = this(text, "")
}

/**
 * The Python process that plans reads for a catalog: `python -m replitree.spark.catalog`.
 *
 * It inherits the environment, which names the token's file: no token is in an argument, an option or a plan.
 */
final class Planner(val python: String, settings: Map[String, String]) {
  private val process = new PythonProcess(
    python, "replitree.spark.catalog", settings, Map.empty,
    "the process that plans reads of tables has ended, and its reason is in the driver's log: run the query again")

  /** Asks for one thing, and waits for the answer. Throws [[CatalogError]]. */
  def answer(operation: String, fields: (String, Any)*): JsonNode = process.answer(operation, fields: _*)

  /** Says something, and waits for nothing. */
  def tell(operation: String, fields: (String, Any)*): Unit = process.tell(operation, fields: _*)
}
