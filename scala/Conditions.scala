package io.replitree.spark

import java.sql.{Date, Timestamp}
import java.time.{Instant, LocalDate, LocalDateTime, ZoneOffset}
import java.time.format.DateTimeFormatter

import org.apache.spark.sql.catalyst.parser.CatalystSqlParser
import org.apache.spark.sql.catalyst.util.DateTimeUtils
import org.apache.spark.sql.sources._

/**
 * Spark's filters as the text of a condition that `replitree` reads.
 *
 * Only what means exactly the same there is translated; every other filter is left out, which prunes less and never too
 * much: Spark applies all of its filters to the rows that it reads, too.
 */
object Conditions {
  private val moment = DateTimeFormatter.ofPattern("uuuu-MM-dd HH:mm:ss.SSSSSS")

  /** The filters that can be translated, joined by AND; "" when there is none. */
  def text(filters: Array[Filter]): String = filters.flatMap(condition).mkString(" AND ")

  /** All of the filters, joined by AND; None when one of them can't be translated. */
  def whole(filters: Array[Filter]): Option[String] = {
    val texts = filters.map(condition)
    if (texts.exists(_.isEmpty)) None else Some(texts.flatten.mkString(" AND "))
  }

  /** A filter that means the same, with both sides of each AND and OR in the order of their texts. */
  def ordered(filter: Filter): Filter = filter match {
    case And(left, right) => both(left, right)(And.apply)
    case Or(left, right) => both(left, right)(Or.apply)
    case Not(inner) => Not(ordered(inner))
    case other => other
  }

  private def both(left: Filter, right: Filter)(join: (Filter, Filter) => Filter): Filter = {
    val (a, b) = (ordered(left), ordered(right))
    if (a.toString <= b.toString) join(a, b) else join(b, a)
  }

  private def condition(filter: Filter): Option[String] = filter match {
    case EqualTo(name, value) => compare(name, "=", value)
    case EqualNullSafe(name, null) => Some(s"${column(name)} IS NULL")
    case EqualNullSafe(name, value) => compare(name, "<=>", value)
    case GreaterThan(name, value) => compare(name, ">", value)
    case GreaterThanOrEqual(name, value) => compare(name, ">=", value)
    case LessThan(name, value) => compare(name, "<", value)
    case LessThanOrEqual(name, value) => compare(name, "<=", value)
    case In(name, values) =>
      val texts = values.map(literal)
      if (texts.isEmpty || texts.exists(_.isEmpty)) None
      else Some(texts.flatten.mkString(s"${column(name)} IN (", ", ", ")"))
    case IsNull(name) => Some(s"${column(name)} IS NULL")
    case IsNotNull(name) => Some(s"${column(name)} IS NOT NULL")
    case StringStartsWith(name, value) => Some(s"${column(name)} LIKE ${quoted(pattern(value) + "%")}")
    case StringEndsWith(name, value) => Some(s"${column(name)} LIKE ${quoted("%" + pattern(value))}")
    case StringContains(name, value) => Some(s"${column(name)} LIKE ${quoted("%" + pattern(value) + "%")}")
    case And(left, right) => for (a <- condition(left); b <- condition(right)) yield s"($a AND $b)"
    case Or(left, right) => for (a <- condition(left); b <- condition(right)) yield s"($a OR $b)"
    case Not(inner) => condition(inner).map(each => s"(NOT $each)")
    case AlwaysTrue() => Some("true")
    case AlwaysFalse() => Some("false")
    case _ => None
  }

  private def compare(name: String, operator: String, value: Any): Option[String] =
    literal(value).map(text => s"(${column(name)} $operator $text)")

  private def column(name: String): String =
    CatalystSqlParser.parseMultipartIdentifier(name).map(part => "`" + part.replace("`", "``") + "`").mkString(".")

  private def literal(value: Any): Option[String] = value match {
    case null => None
    case value: Boolean => Some(value.toString)
    case _: Byte | _: Short | _: Int | _: Long => Some(value.toString)
    // The exact value: the shortest text of a float is another number than the float is.
    case value: Float => number(value.toDouble)
    case value: Double => number(value)
    case value: java.math.BigDecimal => Some(value.toPlainString)
    case value: BigDecimal => Some(value.bigDecimal.toPlainString)
    case value: String => Some(quoted(value))
    case value: Array[Byte] => Some(value.map(each => f"${each & 0xff}%02X").mkString("X'", "", "'"))
    case value: Date => day(LocalDate.ofEpochDay(DateTimeUtils.fromJavaDate(value)))
    case value: LocalDate => day(value)
    case value: Timestamp => instant(DateTimeUtils.microsToInstant(DateTimeUtils.fromJavaTimestamp(value)))
    case value: Instant => instant(value)
    case value: LocalDateTime => known(value.getYear, s"TIMESTAMP_NTZ '${moment.format(value)}'")
    case _ => None
  }

  private def number(value: Double): Option[String] =
    if (value.isNaN || value.isInfinite) None else Some(new java.math.BigDecimal(value).toPlainString)

  private def day(value: LocalDate): Option[String] = known(value.getYear, s"DATE '$value'")

  private def instant(value: Instant): Option[String] = {
    val time = LocalDateTime.ofInstant(value, ZoneOffset.UTC)
    known(time.getYear, s"TIMESTAMP '${moment.format(time)}+00:00'")
  }

  /** Python's calendar has the years 1 to 9999. */
  private def known(year: Int, text: String): Option[String] = if (year >= 1 && year <= 9999) Some(text) else None

  private def quoted(value: String): String = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

  /** A text for LIKE in which no character has a meaning. */
  private def pattern(value: String): String = value.flatMap {
    case special @ ('%' | '_' | '\\') => s"\\$special"
    case other => other.toString
  }
}
