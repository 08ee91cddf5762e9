"""Hadoop's S3A client, as a session of Spark is set up with it: ``spark-defaults.conf`` beside the jars.

``python -m tests.spark.s3a_client FOLDER ENDPOINT`` writes that file into a folder, and ``SPARK_CONF_DIR=FOLDER`` gives it to
every session that is begun then.  Credentials are those of the environment.

The client is the newest that a package of PyPI carries: hadoop-aws 3.3.1 with Amazon's SDK 1.11.  Spark's Hadoop is newer and
has settings in its defaults that this client can't read; those are said anew here, and a client of Spark's own version needs
none of them.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

PACKAGE = "sagemaker-pyspark==1.4.5"
"""Its source archive has the jars; nothing else of it is used."""

JARS = ("hadoop-aws-3.3.1.jar", "aws-java-sdk-bundle-1.11.901.jar")
DOWNLOAD_S_MAX = 600.0

OLD_CLIENT = {
    "aws.credentials.provider": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
    "threads.keepalivetime": "60",
    "connection.timeout": "5000",
    "connection.establish.timeout": "5000",
    "connection.ttl": "300000",
    "connection.request.timeout": "0",
    "multipart.purge.age": "86400",
}
"""Times as bare numbers, and a provider of the older SDK."""

RANDOM = {"experimental.input.fadvise": "random"}
"""Parquet is read by seeking; without this the client breaks its connection off at each seek backwards."""


def client_jars() -> list[Path]:
    """Return the jars; they are brought once for an environment, about 180 MB."""
    folder = Path(sys.prefix) / "s3a-client"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=sys.prefix) as scratch:
            made = _brought(Path(scratch))
            if not folder.is_dir():
                made.rename(folder)
    return [folder / name for name in JARS]


def _brought(scratch: Path) -> Path:
    """Download the package, and return a folder with its jars."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*command, "--dest", scratch, PACKAGE], check=True, timeout=DOWNLOAD_S_MAX)
    (archive,) = scratch.glob("*.tar.gz")
    folder = scratch / "jars"
    folder.mkdir()
    with tarfile.open(archive) as members:
        for member in members:
            if (name := Path(member.name).name) in JARS:
                content = members.extractfile(member)
                assert content is not None
                (folder / name).write_bytes(content.read())
    assert sorted(path.name for path in folder.iterdir()) == sorted(JARS)
    return folder


def settings(endpoint: str) -> Mapping[str, str]:
    """Return the settings of a session whose S3A talks to this server."""
    of_client = {"endpoint": endpoint, "path.style.access": "true", **RANDOM, **OLD_CLIENT}
    jars = ",".join(map(str, client_jars()))
    return {"spark.jars": jars} | {f"spark.hadoop.fs.s3a.{name}": value for name, value in of_client.items()}


def main(folder: Path, endpoint: str) -> None:
    """Write ``spark-defaults.conf``."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} {value}\n" for name, value in settings(endpoint).items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
