"""A server as deploy/ runs it: configured by its environment alone, watched by a service manager, scraped by Prometheus."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Self
from urllib.request import Request, urlopen

import pytest
from typing_extensions import override

from replitree.coordination.embedded import EmbeddedZooKeeper, free_ports
from tests.deploy.files import exposed, named_metrics
from tests.replica.inprocess import TOKEN

pytestmark = pytest.mark.system

TEXT_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} (INFO|WARNING) .*")


class Collector:
    """Takes what is exported by OTLP."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.bodies: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.paths.append(self.path)
                collector.bodies.append(zlib.decompress(body, 31) if self.headers["Content-Encoding"] else body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            @override
            def log_message(self, *_: object) -> None:
                """Be quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_a_server_of_the_environment_tells_when_it_is_ready_and_ends_well(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper", durable=False) as zookeeper,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        Collector() as collector,
    ):
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(120)
        settings = {
            "NAME": "r1",
            "ZOOKEEPER": f"{zookeeper.url}/deployed",
            "DATA": str(tmp_path / "data"),
            "TOKEN_FILE": str(token),
            "LISTEN": f"127.0.0.1:{port}",
            "LOG_FORMAT": "text",
            "OTEL": "true",
        }
        environment = {f"REPLITREE_SET_{key}": value for key, value in settings.items()}
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector.port}"
        server = subprocess.Popen(
            [sys.executable, "-m", "replitree.cli.main", "server"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        )
        try:
            while b"READY=1" not in (told := manager.recv(4096)):
                assert told.startswith(b"STATUS=")
            with urlopen(f"http://127.0.0.1:{port}/health?ready", timeout=90) as answer:
                assert answer.status == 200
            authorized = {"Authorization": f"Bearer {TOKEN}"}
            with urlopen(Request(f"http://127.0.0.1:{port}/metrics", headers=authorized), timeout=90) as answer:
                assert sorted(named_metrics() - exposed(answer.read())) == []
            asked = Request(f"http://127.0.0.1:{port}/v1/status", headers=authorized)
            with urlopen(asked, timeout=90) as answer:
                assert answer.status == 200
            server.send_signal(signal.SIGTERM)
            assert manager.recv(4096) == b"STOPPING=1"
            _, log = server.communicate(timeout=120)
        finally:
            server.kill()
            server.communicate()
    assert server.returncode == 0
    # What was not exported yet is sent when the process ends.
    assert "/v1/traces" in collector.paths
    assert any(b"replitree.request" in body for body in collector.bodies)
    assert log.splitlines()
    assert [line for line in log.splitlines() if not TEXT_LINE.fullmatch(line)] == []
