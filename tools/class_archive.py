"""Archives of classes, from which Java maps them into memory instead of reading, checking and laying them out.

Java writes one when a session of Spark ends that has used what tests use, and one when the ZooKeeper of its cluster ends.  A
session that begins with it needs about half of the CPU until its first result; a ZooKeeper needs three quarters of the CPU of a
start.  Java takes no archive that belongs to other jars or to another Java, and starts without.

Python workers of Spark import PySpark from a zip that has no compiled modules: each process compiles them again, for 0.6 s
of CPU, and Spark waits ten seconds for one that reads a stream.  The zips of this environment get compiled ones.

Usage: ``python -m tools.class_archive``.  Where this Java can write none, the file is empty.

Source: https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import os
import py_compile
import re
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE = ROOT / ".venv" / "spark.jsa"
ZOOKEEPER_ARCHIVE = ROOT / ".venv" / "zookeeper.jsa"

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
"""For Java machines that live a minute: with Java's usual compiler and collector, Spark's tests need 1.7 times the CPU.

Without the log, Java does not say why it starts without an archive.
"""

NOT_OF_WORKERS = re.compile(r"pyspark/(ml|mllib|pandas)/|.*/tests/")
"""Packages of PySpark that no worker of these tests imports; they are most of its modules."""


def java_options() -> str:
    """Return the options with which the Java machines of tests start."""
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE}" if _is_written(ARCHIVE) else SHORT_LIVED


def zookeeper_options() -> tuple[str, ...]:
    """Return the options with which the ZooKeepers that a test starts in its own process begin, beside their usual ones."""
    there = _is_written(ZOOKEEPER_ARCHIVE)
    return (f"-XX:SharedArchiveFile={ZOOKEEPER_ARCHIVE}", "-Xlog:disable") if there else ()


def _is_written(archive: Path) -> bool:
    return archive.exists() and archive.stat().st_size > 0


def main() -> int:
    """Use a session and a cluster, and let their Java write the archives when it ends; before, compile what workers import."""
    import pyspark

    from replitree.coordination import embedded

    for zipped in sorted(Path(pyspark.__file__).parent.glob("python/lib/*.zip")):
        add_compiled(zipped)
    drafts = {archive: archive.with_suffix(".new") for archive in (ARCHIVE, ZOOKEEPER_ARCHIVE)}
    for draft in drafts.values():
        draft.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={drafts[ARCHIVE]}"
    embedded.JAVA_FLAGS += (f"-XX:ArchiveClassesAtExit={drafts[ZOOKEEPER_ARCHIVE]}", "-Xlog:disable")
    with tempfile.TemporaryDirectory(prefix="replitree-classes-") as folder:
        use_spark(Path(folder))
    for archive, draft in drafts.items():
        draft.touch()
        draft.replace(archive)
    return 0


def add_compiled(zipped: Path) -> None:
    """Put compiled modules beside those in a zip of PySpark that workers import, unless they are there."""
    draft = zipped.with_suffix(".new")
    shutil.copyfile(zipped, draft)
    with zipfile.ZipFile(draft, "a") as made, tempfile.TemporaryDirectory() as folder:
        source, compiled = Path(folder, "source.py"), Path(folder, "source.pyc")
        there = made.namelist()
        for name in there:
            if name.endswith(".py") and f"{name}c" not in there and not NOT_OF_WORKERS.match(name):
                source.write_bytes(made.read(name))
                # With no time of the source: zips round it.
                mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(str(source), str(compiled), dfile=name, doraise=True, invalidation_mode=mode)
                made.write(compiled, f"{name}c")
    draft.replace(zipped)


def use_spark(folder: Path) -> None:
    """Run what makes Spark load most classes that tests need: the catalog, Parquet files, the data source, Python, SQL."""
    import replitree
    from replitree.spark.session.session import spark_session

    with replitree.local(replicas=1, folder=folder / "cluster") as cluster:
        session = spark_session(
            master="local[2]",
            conf={"spark.driver.memory": "1g", "spark.sql.catalog.replitree.url": str(cluster.folder)},
        )
        session.sql("create table replitree.default.t (k bigint not null, d date, s string) partitioned by (months(d))")
        session.range(100).selectExpr("id k", "date'2020-01-01' d", "string(id) s").createOrReplaceTempView("rows")
        session.sql("insert into replitree.default.t select * from rows")
        session.sql("update replitree.default.t set s = 'x' where k % 7 = (select min(k) from rows)")
        session.table("replitree.default.t").createOrReplaceTempView("t")
        session.sql("select l.d, count(*) from t l join t r on l.k = r.k group by l.d order by 2").collect()
        session.table("replitree.default.t").write.parquet(str(folder / "files"))
        session.read.parquet(str(folder / "files")).where("k < 9").selectExpr("max(s)").toPandas()
        session.udf.register("same", lambda key: key, "bigint")
        session.sql("select same(k) from replitree.default.t").collect()
        source = session.read.format("replitree").options(url=str(cluster.folder), table="t").load()
        source.write.format("replitree").options(url=str(cluster.folder), table="t").mode("append").save()
        session.stop()
        # Java writes when it ends, which it does when the gateway's pipe is closed.
        gateway = session.sparkContext._gateway  # noqa: SLF001  # PySpark has no other way to its Java
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    sys.exit(main())
