"""The catalog of a session: SQL over the cluster's tables, as ``replitree.default.<table>`` (`scala/` in the checkout).

The wheel carries a jar of Scala classes.  `catalog_settings` gives the two settings that any session needs for it, and
`use_catalog` looks whether this Spark can load it.  Without it everything else works: `to_df`, ``format("replitree")`` and
`sql_views` are Python.

Guarantees: a session whose Spark can't load the jar has no catalog `replitree`, and one line of the log says why.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAR = Path(__file__).resolve().parent.parent / "jars" / "replitree-spark.jar"
CATALOG = "spark.sql.catalog.replitree"
CATALOG_CLASS = "io.replitree.spark.ReplitreeCatalog"
JARS = "spark.jars"

_log = logging.getLogger("replitree.spark")


def catalog_settings(chosen: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return the settings with which a session has the catalog `replitree`; none when this installation has no jar.

    Parameters
    ----------
    chosen
        Settings that the session has already: the jar is added to its jars.

    Examples
    --------
    ::

        builder = SparkSession.builder
        for key, value in catalog_settings().items():
            builder = builder.config(key, value)
    """
    if not JAR.exists():
        return {}
    jars = [each for each in str((chosen or {}).get(JARS, "")).split(",") if each and each != str(JAR)]
    return {JARS: ",".join([*jars, str(JAR)]), CATALOG: str((chosen or {}).get(CATALOG, CATALOG_CLASS))}


def use_catalog(spark: SparkSession) -> None:
    """Take the catalog away from a session that can't load it, and log why."""
    if spark.conf.get(CATALOG, None) != CATALOG_CLASS:
        return
    try:
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - there is no other way
    except (AttributeError, PySparkException):
        # Of a session of Spark Connect the server has loaded the jar, or not.
        return
    try:
        jvm.io.replitree.spark.Links.check()
    except (Py4JError, PySparkException, TypeError) as error:
        # Py4J takes a class that it does not find for a package, and a package can't be called.
        if isinstance(error, TypeError):
            reason = "this Java process began without the jar"
        else:
            reason = str(getattr(error, "java_exception", None) or error).split("\n", 1)[0]
        spark.conf.unset(CATALOG)
        _log.warning(
            "the catalog replitree is not there (%s): Spark %s reads tables by to_df, format and sql_views only",
            reason,
            spark.version,
        )
