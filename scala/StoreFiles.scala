package io.replitree.spark

import java.util.concurrent.ConcurrentHashMap

import com.fasterxml.jackson.databind.node.JsonNodeFactory
import org.apache.spark.SparkEnv

/**
 * How tasks of a statement put their files into the table's object store; null stands for tables that have none.
 *
 * `job` is what the process beside the executor needs (`catalog/row_files.py`); it has a ticket. With `mustPut` the statement fails
 * where a task does not reach the store, otherwise its files go to `replica`.
 */
final class StoreFiles(python: String, job: String, mustPut: Boolean, replica: String) extends Serializable {
  /**
   * Has the files of a task put, each a part and a path; the answer is for the planner, and false: they are where they were.
   *
   * Throws [[CatalogError]]: Spark tries the task again.
   */
  def put(files: Array[Array[String]]): (String, Boolean) = {
    val process = StoreFiles.process(python)
    def ask() = process.answer("put", "job" -> job, "files" -> files)
    try {
      // The process ends when it is idle, maybe in the moment of this request. Again is harmless: names are given once.
      val answer = try ask() catch { case error: CatalogError if error.kind.isEmpty => ask() }
      if (answer.has("missed")) missed(answer.get("missed").asText)
      else (answer.toString, true)
    } catch {
      // There is no such process: as where the store is not reached, another try on this executor would end in the same way.
      case error: CatalogError if error.kind.isEmpty && mustPut => (problem(error.getMessage), true)
      case error: CatalogError if error.kind.isEmpty => missed(error.getMessage)
    }
  }

  private def problem(why: String): String = {
    val answer = JsonNodeFactory.instance.objectNode
    answer.putObject("problem").put("error", "StoreError").put("message", why)
    answer.toString
  }

  private def missed(why: String): (String, Boolean) = {
    // An executor's log is what its processes write there.
    System.err.println(s"replitree: $why: the rows of this task go through replica $replica")
    (JsonNodeFactory.instance.objectNode.put("missed", why).toString, false)
  }
}

object StoreFiles {
  private val processes = new ConcurrentHashMap[String, PythonProcess]

  /** The process of this executor; the environment is the one that Spark gives to Python workers. */
  private def process(python: String): PythonProcess = processes.computeIfAbsent(python, _ => new PythonProcess(
    python, "replitree.spark.catalog.put_process", Map.empty, SparkEnv.get.conf.getExecutorEnv.toMap,
    s"no process of $python puts files into the object store here, and its reason is in the executor's log"))
}
