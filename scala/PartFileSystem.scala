package io.replitree.spark

import java.io.{EOFException, File, FileInputStream, IOException, InputStream}
import java.net.{HttpURLConnection, Proxy, URI}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import java.util
import java.util.HexFormat
import java.util.concurrent.ConcurrentHashMap
import java.util.zip.CRC32
import javax.net.ssl.{HttpsURLConnection, SSLSocketFactory}

import io.netty.handler.ssl.{JdkSslContext, SslContextBuilder, SslProvider}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{ChecksumException, FSDataInputStream, FSDataOutputStream, FSInputStream, FileStatus, FileSystem, Path}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/**
 * The data files of a snapshot's parts, for executors on any machine: `replitree://parts/<table>/<part>/<bytes>-<checksum>/<file>`.
 *
 * Guarantees: every byte that is read was compared with a block checksum of the file whose checksum the path names. So a file
 * that was replaced by one with other bytes is an error, and never other rows. A task reads the file on its own disk when it is
 * there, and otherwise asks the replicas for the ranges that Parquet's reader wants; when one fails, the next one goes on.
 *
 * The options of a reader have the rest (`replitree.spark.store.remote`): addresses, the folder of the parts, the secret, and the
 * paths of the files of TLS. No path, plan or log has the secret. The path names the size, so that no request is needed to plan.
 *
 * Absent on purpose: everything that changes a file, and a cache: Parquet's reader reads what it needs once.
 */
final class PartFileSystem extends FileSystem {
  private var uri: URI = _

  override def getScheme: String = "replitree"
  override def initialize(name: URI, conf: Configuration): Unit = {
    super.initialize(name, conf)
    uri = URI.create(s"$getScheme://${name.getAuthority}")
  }
  override def getUri: URI = uri
  override def open(path: Path, bufferSize: Int): FSDataInputStream =
    new FSDataInputStream(new PartInput(new ReplicaFile(path), getConf, statistics))
  override def getFileStatus(path: Path): FileStatus = new FileStatus(new ReplicaFile(path).size, false, 1, 128L << 20, 0L, path)
  override def listStatus(path: Path): Array[FileStatus] = Array(getFileStatus(path))
  override def getWorkingDirectory: Path = new Path(uri.toString + "/")
  override def setWorkingDirectory(path: Path): Unit = ()

  private def refuse() = throw new UnsupportedOperationException("parts of tables are only read here: insert rows instead")
  override def create(
      path: Path, permission: FsPermission, overwrite: Boolean, bufferSize: Int, replication: Short, blockSize: Long,
      progress: Progressable): FSDataOutputStream = refuse()
  override def append(path: Path, bufferSize: Int, progress: Progressable): FSDataOutputStream = refuse()
  override def rename(from: Path, to: Path): Boolean = refuse()
  override def delete(path: Path, recursive: Boolean): Boolean = refuse()
  override def mkdirs(path: Path, permission: FsPermission): Boolean = refuse()
}

/** What a path says of a data file. */
private final class ReplicaFile(val path: Path) {
  private val names = path.toUri.getPath.split('/')
  if (names.length != 5) throw new IOException(s"$path is no data file of a part")
  val part: String = names(2)
  val name: String = names(4)
  private val identity = names(3).split('-')
  val size: Long = identity(0).toLong
  val checksum: String = identity(1)
  val route: String = s"/v1/tables/${names(1)}/parts/$part"
}

/** CRC-32 of the blocks of one file, as `replitree.storage.files.sums` encodes them. */
private final class BlockSums(encoded: Array[Byte], file: ReplicaFile) {
  private[this] final val Head = 0x63726300
  /** "RTSUMS01", as a little-endian number. */
  private[this] final val Magic = 0x3130534d55535452L
  private[this] final val Block = PartInput.Block
  private val blocks = ((file.size + Block - 1) / Block).toInt
  private val head = ByteBuffer.wrap(encoded)

  if (encoded.length != 8 + 12L * blocks + 48 || head.getInt(0) != Head || head.getInt(4) != Block) wrong()
  private val tail = ByteBuffer.wrap(encoded).order(ByteOrder.LITTLE_ENDIAN).position(8 + 12 * blocks)
  if (tail.getLong() != Magic || tail.getLong() != file.size) wrong()
  private val whole = new Array[Byte](16)
  tail.get(whole)
  if (HexFormat.of.formatHex(whole) != file.checksum) wrong()

  private def wrong() = throw new ChecksumException(s"the block checksums of ${file.path} are those of another file", 0)

  /** Compares whole blocks with their checksums. */
  def check(data: Array[Byte], first: Long): Unit = {
    var at = 0
    while (at < data.length) {
      val crc = new CRC32
      crc.update(data, at, math.min(Block, data.length - at))
      val position = first + at
      if (crc.getValue.toInt != head.getInt(8 + 4 * (position / Block).toInt))
        throw new ChecksumException(s"Checksum error: ${file.path} at $position", position)
      at += Block
    }
  }
}

/** A place that has the bytes of a file: a folder of this machine, or a replica. */
private abstract class Source {
  /** The file's block checksums, encoded. */
  def sums(): InputStream
  /** The bytes from `first` to before `end`. */
  def open(first: Long, end: Long): InputStream
  /** Notes that bytes which it gave do not have their checksum. */
  def report(): Unit = ()
}

private final class LocalSource(file: ReplicaFile, folder: String) extends Source {
  private val parts = new File(folder, file.part)
  override def sums(): InputStream = new FileInputStream(new File(parts, s".${file.name}.crc"))
  override def open(first: Long, end: Long): InputStream = {
    val opened = new FileInputStream(new File(parts, file.name))
    opened.getChannel.position(first)
    opened
  }
}

private final class ReplicaSource(file: ReplicaFile, address: String, conf: Configuration) extends Source {
  override def sums(): InputStream = ask("GET", s"/files/${file.name}/sums", 200, null)
  override def open(first: Long, end: Long): InputStream =
    ask("GET", s"/files/${file.name}", 206, s"bytes=$first-${end - 1}")
  override def report(): Unit = try ask("POST", "/check", 200, null).close() catch { case _: IOException => () }

  private def ask(method: String, what: String, expected: Int, range: String): InputStream =
    PartInput.ask(method, address, file.route + what, "checksum=" + file.checksum, conf.get("fs.replitree.secret"),
      conf.get("fs.replitree.tls", ""), expected, range, null)
}

/** Reads a data file in whole blocks, each of which is verified. */
private final class PartInput(file: ReplicaFile, conf: Configuration, statistics: FileSystem.Statistics) extends FSInputStream {
  import PartInput._

  private var position = 0L
  private var first = 0L
  private var blocks = Array.emptyByteArray
  /** The end of the file, with the footer and the index of the pages: Parquet's reader comes back to it for each row group. */
  private var tail = blocks
  private var tailFirst = Long.MaxValue
  private var sums = known.get(file.path)

  override def getPos: Long = position
  override def seek(to: Long): Unit =
    if (to < 0 || to > file.size) throw new EOFException(s"${file.path} has ${file.size} bytes: there is no byte $to")
    else position = to
  override def seekToNewSource(to: Long): Boolean = false

  override def read(): Int = {
    val one = new Array[Byte](1)
    if (read(one, 0, 1) < 0) -1 else one(0) & 0xff
  }

  override def read(into: Array[Byte], offset: Int, length: Int): Int =
    if (length == 0) 0
    else if (position >= file.size) -1
    else {
      if (position < first || position >= first + blocks.length) {
        if (position < tailFirst) fill(length)
        else {
          blocks = tail
          first = tailFirst
        }
      }
      val at = (position - first).toInt
      val count = math.min(length, blocks.length - at)
      System.arraycopy(blocks, at, into, offset, count)
      position += count
      count
    }

  /** Reads the blocks that have the next bytes: of a small file all, and at the end of a large one what a footer needs. */
  private def fill(wanted: Int): Unit = {
    val end = if (file.size <= WholeMax) file.size
      else math.min(file.size, (position + math.min(wanted, RequestMax) + Block - 1) / Block * Block)
    val begin = if (file.size <= WholeMax) 0L
      else (if (end == file.size) math.min(position, file.size - FooterBytes) else position) / Block * Block
    blocks = read(begin, end)
    first = begin
    if (end == file.size && begin < tailFirst && blocks.length <= 4 * WholeMax) {
      tail = blocks
      tailFirst = begin
    }
    statistics.incrementBytesRead(blocks.length)
    statistics.incrementReadOps(1)
  }

  /** Reads whole blocks, and goes on with another source when one fails. */
  private def read(begin: Long, end: Long): Array[Byte] = {
    val data = new Array[Byte]((end - begin).toInt)
    var have = 0
    var problem: IOException = new IOException(s"no replica is known that has ${file.path}")
    val left = sources.iterator
    while (left.hasNext) {
      val source = left.next()
      var body: InputStream = null
      try {
        if (sums == null) {
          body = source.sums()
          sums = new BlockSums(body.readAllBytes(), file)
          body.close()
          if (known.size > KnownMax) known.clear()
          known.put(file.path, sums)
        }
        body = source.open(begin + have, end)
        var count = 0
        while (have < data.length && count >= 0) {
          // Counted piece by piece: the next source goes on where this one stops.
          count = body.read(data, have, data.length - have)
          if (count > 0) have += count
        }
        if (have == data.length) {
          sums.check(data, begin)
          return data
        }
        problem = new EOFException(s"${file.path} ended after ${begin + have} bytes")
      } catch {
        case error: ChecksumException =>
          // Bytes of several sources may be mixed: the next one sends all of them.
          have = 0
          problem = error
          source.report()
        case error: IOException => problem = error
      } finally if (body != null) body.close()
    }
    throw problem
  }

  /** This machine's folder first, then the replicas; those that did not answer lately come last. */
  private def sources: util.ArrayList[Source] = {
    val (found, late) = (new util.ArrayList[Source], new util.ArrayList[Source])
    val folder = conf.get("fs.replitree.folder")
    if (folder != null) found.add(new LocalSource(file, folder))
    val addresses = conf.getTrimmedStringCollection("fs.replitree.addresses").iterator
    while (addresses.hasNext) {
      val address = addresses.next()
      val since = silent.get(address)
      val isLate = since != null && System.nanoTime - since.longValue < SilentNs
      (if (isLate) late else found).add(new ReplicaSource(file, address, conf))
    }
    found.addAll(late)
    found
  }
}

private object PartInput {
  /** Bytes of a block, as the sums have them. */
  final val Block = 1 << 16
  /** A file of at most so many bytes is asked for as a whole: one request instead of one for each column. */
  private final val WholeMax = 4 * Block
  private final val FooterBytes = Block
  private final val RequestMax = 8 << 20

  private final val ConnectMs = 3000
  /** How long a replica may be silent while it answers. */
  private final val SilenceMs = 60000

  /** The block checksums of files that this process has read: a path says which content they are of. */
  val known = new ConcurrentHashMap[Path, BlockSums]
  private final val KnownMax = 4096

  /** When replicas last did not answer (`System.nanoTime`), by address; for so long the others are asked first. */
  val silent = new ConcurrentHashMap[String, java.lang.Long]
  private final val SilentNs = 30L * 1000 * 1000 * 1000

  /** What TLS begins with, by paths and times of the files: connections are kept for the same factory only. */
  private[this] val factories = new ConcurrentHashMap[String, SSLSocketFactory]

  /** Returns what TLS begins with; `files` has the paths of authorities, certificate and key, a line for each, perhaps empty. */
  private def factory(files: String): SSLSocketFactory = {
    val paths = files.split("\n", -1)
    val (ca, own, key) = (new File(paths(0)), new File(paths(1)), new File(paths(2)))
    val stamp = files + ca.lastModified + own.lastModified + key.lastModified
    var made = factories.get(stamp)
    if (made == null) {
      // Netty comes with Spark, and reads PEM, for which Java has nothing.
      val builder = SslContextBuilder.forClient.sslProvider(SslProvider.JDK)
      if (!paths(0).isEmpty) builder.trustManager(ca)
      if (!paths(1).isEmpty) builder.keyManager(own, key)
      made = builder.build.asInstanceOf[JdkSslContext].context.getSocketFactory
      if (factories.size > 64) factories.clear()
      factories.put(stamp, made)
    }
    made
  }

  /**
   * Sends a request to a replica, with a ticket and perhaps a range or a file, and returns the answer that has this status.
   *
   * `tls` has the files of TLS, as `factory` takes them; empty: the JVM trusts the authorities of its trust store.
   */
  def ask(
      method: String, address: String, path: String, query: String, secret: String, tls: String, expected: Int, range: String,
      body: File): InputStream = {
    // Not java.net.http: it has no time limit for a body, and a replica may be stopped in the middle of one.
    val place = address.stripPrefix("https://")
    val url = new URI(if (place == address) "http" else "https", place, path, query, null).toURL
    val connection = url.openConnection(Proxy.NO_PROXY).asInstanceOf[HttpURLConnection]
    if (!tls.isEmpty) {
      if (place == address) throw new IOException(s"replica at $address speaks clear text: this client wants TLS (tls_ca)")
      // It verifies the host name by itself.
      connection.asInstanceOf[HttpsURLConnection].setSSLSocketFactory(factory(tls))
    }
    connection.setRequestMethod(method)
    connection.setConnectTimeout(ConnectMs)
    connection.setReadTimeout(SilenceMs)
    connection.setRequestProperty("Authorization", s"Bearer $secret")
    if (range != null) connection.setRequestProperty("Range", range)
    val status = try {
      if (body != null) {
        connection.setDoOutput(true)
        connection.setFixedLengthStreamingMode(body.length)
        Files.copy(body.toPath, connection.getOutputStream)
      }
      connection.getResponseCode
    } catch {
      case error: IOException =>
        silent.put(address, System.nanoTime)
        throw new IOException(s"replica at $address: $error", error)
    }
    if (status == expected) return connection.getInputStream
    val refused = connection.getErrorStream
    val text = if (refused == null) "" else try new String(refused.readAllBytes(), UTF_8) finally refused.close()
    throw new IOException(s"replica at $address answered with status $status: $text")
  }
}
