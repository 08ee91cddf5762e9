"""A server of Spark Connect as a process, from PySpark's own jars."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import pyspark

from replitree.java import java_home
from replitree_bench.kit.standalone import ENDS_WITH_PARENT, said
from tests.spark.drivers import DRIVER_S_MAX
from tests.spark.warm_session import DAEMON
from tests.waiting import wait_for

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
PLACE = "Spark Connect server started at: "


class ConnectServer:
    """A server that runs all tasks itself; a context manager that ends it.

    Parameters
    ----------
    folder
        For its log and its files.
    way
        The first words of its command: in what it can't see, it differs from this process.
    settings
        Of Spark, more than those that every server here has.
    """

    def __init__(self, folder: Path, way: Sequence[str] = (), settings: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._way = way
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        home = Path(pyspark.__file__).parent
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": 0,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": 2,
            "spark.local.dir": self._folder,
            "spark.sql.warehouse.dir": self._folder / "warehouse",
            DAEMON: "tests.spark.warm_daemon",
        } | self._settings
        words = ["--master", "local[2]", "--driver-memory", "768m", "--class", SERVER]
        for name, value in settings.items():
            words += ["--conf", f"{name}={value}"]
        # The token is no part of the server's environment: its tasks have what their plans bring.
        environment = os.environ | {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "HOME": str(self._folder),
            "REPLITREE_TOKEN": "",
        }
        log = self._folder / "server.log"
        with log.open("wb") as out:
            submit = str(home / "bin" / "spark-submit")
            command = [*ENDS_WITH_PARENT, *self._way, submit, *words, "spark-internal"]
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=self._folder)
        what = "the server has a port"
        place = wait_for(lambda: said(log, PLACE), lambda: f"{what}: {log.read_text()[-2000:]}", DRIVER_S_MAX)
        self.url = f"sc://127.0.0.1:{place.rpartition(':')[2]}"
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
