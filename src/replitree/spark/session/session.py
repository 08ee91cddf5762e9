"""A Spark session in which tables work: the settings, each with the reason why.

Guarantees: workers run this Python, or one that was checked to have what they need; Spark finds a Java that is new
enough; what the caller sets wins over what is set here.

Absent on purpose: a session of our own.  `spark_session` sets up the ordinary one, and any other session works as well
as its settings let it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pyspark.sql import SparkSession

import replitree
from replitree.client.arguments import check_arguments
from replitree.errors import BadInput
from replitree.java import java_home
from replitree.spark.session.catalog import catalog_settings, use_catalog
from replitree.spark.session.hints import note_statements

PYTHON_VARIABLE = "PYSPARK_PYTHON"
CHECK_S_MAX = 60.0
"""How long another Python may take to show that it has what workers need, in seconds."""

DEFAULTS: dict[str, str] = {
    # More than 32 paths would start a job just to list them; a snapshot's files are known.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    # Arrow exchanges timestamps as UTC, partitions are made in UTC, and a table looks the same in every session.
    "spark.sql.session.timeZone": "UTC",
    # What our tables have; INT96 has no statistics and other readers see nanoseconds.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Listening on all addresses is for the caller to ask for.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

LOCAL_DEFAULTS: dict[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # In local mode the driver does all the work; Spark's own default of 1 GB spills early.
    "spark.driver.memory": "2g",
}


@check_arguments
def spark_session(
    builder: SparkSession.Builder | None = None,
    *,
    app_name: str = "replitree",
    master: str | None = None,
    conf: Mapping[str, object] | None = None,
) -> SparkSession:
    """Return a session with the settings that tables want, and with their catalog `replitree` for SQL.

    Parameters
    ----------
    builder
        To start from; what it has set is kept.
    app_name, master
        As Spark's; by default the environment's master, or all cores of this machine.
    conf
        More settings; they win.

    Raises
    ------
    JavaMissing
        There is no Java 17 or newer.
    BadInput
        ``PYSPARK_PYTHON`` names a Python that lacks replitree or pyarrow.

    Examples
    --------
    ::

        spark = spark_session(conf={"spark.sql.shuffle.partitions": 8})
        table.to_df(spark).groupBy("k").count().show()
        spark.sql("select k, count(*) from replitree.default.events group by k").show()
    """
    set_worker_python()
    # Spark's launcher looks there first, however old that Java is.
    os.environ["JAVA_HOME"] = str(java_home())
    builder = builder if builder is not None else SparkSession.Builder()
    chosen: dict[str, object] = dict(vars(builder).get("_options", {}))
    # Spark reads `true`, and not Python's `True`.
    given = {key: str(each).lower() if isinstance(each, bool) else str(each) for key, each in (conf or {}).items()}
    chosen |= given
    chosen.setdefault("spark.app.name", app_name)
    chosen["spark.master"] = master or chosen.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    defaults = DEFAULTS | (LOCAL_DEFAULTS if str(chosen["spark.master"]).startswith("local") else {})
    for key, value in (defaults | chosen | catalog_settings(chosen)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    use_catalog(spark)
    note_statements(spark)
    return spark


def set_worker_python() -> None:
    """Make workers run this Python, and make them find this package.

    Without it they run whatever ``python3`` is first on the path, which rarely has pyarrow.  It takes effect for
    sessions that start afterwards.

    Raises
    ------
    BadInput
        The environment names another Python, and that one lacks what workers need.
    """
    package = str(Path(replitree.__file__).resolve().parent.parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # Of a checkout: workers find an installed package by themselves.
    if "site-packages" not in package and package not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([package, *filter(None, paths)])
    python = os.environ.setdefault(PYTHON_VARIABLE, sys.executable)
    if Path(python) != Path(sys.executable):
        check_worker_python(python)


@lru_cache(maxsize=8)
def check_worker_python(python: str) -> None:
    """Check that a Python can run our part of Spark's workers.

    Raises
    ------
    BadInput
        It does not run, is of another version than this one, or lacks replitree, pyspark or pyarrow.
    """
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = "import sys, pyarrow, pyspark, replitree, pyspark_replitree; print('%d.%d' % sys.version_info[:2])"
    advice = f"unset {PYTHON_VARIABLE}, or set it to {sys.executable}"
    try:
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=CHECK_S_MAX, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise BadInput(f"{PYTHON_VARIABLE}={python} can't be run ({error}): {advice}") from error
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it failed"]
        raise BadInput(f"Spark's workers would run {python}, which can't import what they need ({last[0]}): {advice}")
    # Spark refuses workers of another minor version, but only when the first task runs.
    if done.stdout.strip() != mine:
        raise BadInput(f"Spark's workers would run Python {done.stdout.strip()}, and this is {mine}: {advice}")
