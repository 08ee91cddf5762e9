"""Sessions of Spark whose Python workers have imported what they need (`tests.spark.warm_daemon`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from replitree.spark.session.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAEMON = "spark.python.daemon.module"
JAVA_END_S = 60.0


def begin_warm_session(master: str, conf: Mapping[str, object]) -> SparkSession:
    """Begin a session; its Java starts in the root of the checkout.

    A process has one Java machine, which keeps the settings of its first session for all that follow.  The daemon is taken out
    of them: executors on a cluster would not find its module.
    """
    made = spark_session(master=master, conf={DAEMON: "tests.spark.warm_daemon", **conf})
    gateway = made.sparkContext._gateway  # noqa: SLF001 - Spark has no other way
    assert gateway is not None
    gateway.jvm.java.lang.System.clearProperty(DAEMON)
    return made


def end_java() -> None:
    """End this process's Java machine, if it has one; no session runs.

    The next session begins another one, with the environment that this process has by then.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - Spark keeps it for the next session, and has no other way to end it
    if gateway is not None:
        gateway.shutdown()
        # Java ends when its parent can't tell it anything any more.
        gateway.proc.stdin.close()
        gateway.proc.wait(JAVA_END_S)
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
