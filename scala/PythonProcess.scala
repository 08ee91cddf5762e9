package io.replitree.spark

import java.io.{BufferedReader, BufferedWriter, IOException, InputStreamReader, OutputStreamWriter}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap}
import java.util.concurrent.atomic.AtomicLong

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}

/**
 * A process of our own beside this JVM that answers requests: `python -m <module>`.
 *
 * It speaks one JSON object per line. Several threads may ask at the same time; answers come in any order and carry the
 * number of their request. The process ends when its standard input does, so it never outlives this JVM. It inherits the
 * environment, with `environment` beside it: no secret is an argument. A process that has ended is started again by the next
 * request; `ended` is what the user reads whose request it did not answer.
 */
final class PythonProcess(
    python: String, module: String, settings: Map[String, String], environment: Map[String, String], ended: String) {
  private val json = new ObjectMapper
  private val numbers = new AtomicLong
  private var running: Running = _

  /** Asks for one thing, and waits for the answer. Throws [[CatalogError]]. */
  def answer(operation: String, fields: (String, Any)*): JsonNode = {
    val answer = send(operation, fields).get()
    val error = answer.get("error")
    // Here, and not where the answer was read: the stack is that of the statement.
    if (error != null) throw new CatalogError(error.get("message").asText, error.get("kind").asText)
    answer.get("result")
  }

  /** Says something, and waits for nothing. */
  def tell(operation: String, fields: (String, Any)*): Unit = send(operation, fields)

  private def send(operation: String, fields: Seq[(String, Any)]): CompletableFuture[JsonNode] = {
    val request = json.createObjectNode().put("id", numbers.incrementAndGet()).put("do", operation)
    for ((name, value) <- fields if value != null) request.set[JsonNode](name, json.valueToTree[JsonNode](value))
    current().ask(request.get("id").asLong, json.writeValueAsString(request))
  }

  private def current(): Running = synchronized {
    if (running == null || !running.isAlive) running = new Running
    running
  }

  private final class Running {
    private val waiting = new ConcurrentHashMap[Long, CompletableFuture[JsonNode]]
    private val process = {
      val builder = new ProcessBuilder(python, "-m", module)
      builder.redirectError(ProcessBuilder.Redirect.INHERIT)
      builder.environment.putAll(environment.asJava)
      try builder.start()
      catch {
        case error: IOException =>
          throw new CatalogError(
            s"can't start $python (${error.getMessage}): set PYSPARK_PYTHON to the Python that has replitree")
      }
    }
    private val lines = new BufferedWriter(new OutputStreamWriter(process.getOutputStream, UTF_8))

    private val reader = new Thread(() => read(), s"$module-answers")
    reader.setDaemon(true)
    reader.start()
    // The first line has the settings: arguments of a process can be seen by every user of the machine.
    send(json.writeValueAsString(settings.asJava))

    def isAlive: Boolean = process.isAlive && reader.isAlive

    def ask(id: Long, line: String): CompletableFuture[JsonNode] = {
      val answer = new CompletableFuture[JsonNode]
      waiting.put(id, answer)
      send(line)
      // The process may have ended between the look at it and this request: its reader has failed all others by then.
      if (!reader.isAlive) fail()
      answer
    }

    private def send(line: String): Unit = lines.synchronized {
      try { lines.write(line); lines.write('\n'); lines.flush() }
      catch { case _: IOException => fail() }
    }

    private def read(): Unit = {
      val answers = new BufferedReader(new InputStreamReader(process.getInputStream, UTF_8))
      try Iterator.continually(answers.readLine()).takeWhile(_ != null).map(line => json.readTree(line)).foreach(settle)
      catch { case _: IOException => () }
      finally fail()
    }

    private def settle(answer: JsonNode): Unit = {
      val asked = waiting.remove(answer.get("id").asLong)
      if (asked != null) asked.complete(answer)
    }

    private def fail(): Unit = waiting.keySet.forEach { id =>
      val asked = waiting.remove(id)
      if (asked != null) {
        val error = json.createObjectNode().put("kind", "").put("message", ended)
        asked.complete(json.createObjectNode().set[JsonNode]("error", error))
      }
    }
  }
}
