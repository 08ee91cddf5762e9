"""Providers of identities, as small servers of this machine: Amazon's token service, a container's and an instance's endpoint,
Google's token service and metadata server, the endpoint of a managed identity of Azure's.

Each gives the credentials of `given`, one after the other, and the last one for ever; with `away` it gives none.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from typing_extensions import override

SOON_S = 240
"""So long the credentials last that a library renews when it is asked: Amazon's and Google's do so minutes before the end."""

LONG_S = 6 * 3600


class Provider:
    """The server, on a free port of this machine.

    Attributes
    ----------
    given
        What it gives: an id of the secret, and for how many seconds it lasts.
    away
        Whether it answers with an error.
    asked
        Method and path of each request.
    """

    def __init__(self, *given: tuple[str, int]) -> None:
        self.given = list(given)
        self.away = False
        self.asked: list[str] = []
        self.lock = threading.Lock()
        bound = type("Bound", (_Handler,), {"provider": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"

    def next(self) -> tuple[str, int]:
        with self.lock:
            return self.given.pop(0) if len(self.given) > 1 else self.given[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    provider: Provider

    @override
    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.provider.asked.append(f"{self.command} {self.path} {body}")
        path = urlsplit(self.path).path
        if self.provider.away:
            self._send(500, b"secret-of-an-error")
        elif path == "/latest/api/token":  # an instance of Amazon's: first a token for the session
            self._send(200, b"session", {"x-aws-ec2-metadata-token-ttl-seconds": "21600"})
        elif path.rstrip("/") == "/latest/meta-data/iam/security-credentials":
            self._send(200, b"role-of-the-instance")
        elif path.endswith(("/role-of-the-instance", "/container")):
            self._send_json(self._amazon())
        elif "AssumeRoleWithWebIdentity" in body or "AssumeRoleWithWebIdentity" in self.path:
            self._send(200, self._assumed(body).encode(), {"Content-Type": "text/xml"})
        elif path == "/google/token":
            key, seconds = self.provider.next()
            self._send_json({"access_token": key, "expires_in": seconds, "token_type": "Bearer"})
        elif path.startswith("/computeMetadata/") or path == "/":
            self._metadata(path)
        elif path == "/azure/token":
            key, seconds = self.provider.next()
            ends = int((datetime.now(UTC) + timedelta(seconds=seconds)).timestamp())
            self._send_json(
                {"access_token": key, "expires_on": str(ends), "resource": "storage", "token_type": "Bearer"}
            )
        else:
            self._send(404, b"")

    def _metadata(self, path: str) -> None:
        flavour = {"Metadata-Flavor": "Google"}
        if path.endswith("/token"):
            key, seconds = self.provider.next()
            self._send_json({"access_token": key, "expires_in": seconds, "token_type": "Bearer"}, flavour)
        elif path.endswith("/service-accounts/default/"):
            self._send_json({"email": "robot@example.test", "scopes": [], "aliases": ["default"]}, flavour)
        else:
            self._send(200, b"example", flavour | {"Content-Type": "text/plain"})

    def _amazon(self) -> Mapping[str, Any]:
        key, seconds = self.provider.next()
        return {
            "Code": "Success",
            "AccessKeyId": key,
            "SecretAccessKey": f"secret-of-{key}",
            "Token": f"session-of-{key}",
            "Expiration": (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _assumed(self, body: str) -> str:
        assert parse_qs(body)["WebIdentityToken"] == ["proof-of-the-pod"]
        made = self._amazon()
        return (
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            "<AssumeRoleWithWebIdentityResult><Credentials>"
            f"<AccessKeyId>{made['AccessKeyId']}</AccessKeyId><SecretAccessKey>{made['SecretAccessKey']}</SecretAccessKey>"
            f"<SessionToken>{made['Token']}</SessionToken><Expiration>{made['Expiration']}</Expiration></Credentials>"
            "<AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn><AssumedRoleId>r:s</AssumedRoleId></AssumedRoleUser>"
            "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        )

    def _send_json(self, value: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"} | dict(headers or {}))

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | dict(headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def service_account(folder: Path, provider: Provider) -> Path:
    """Write the file of a service account of Google's whose tokens a provider gives."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    file = folder / "robot.json"
    file.write_text(
        json.dumps(
            {
                "type": "service_account",
                "project_id": "example",
                "private_key_id": "1",
                "private_key": private,
                "client_email": "robot@example.test",
                "client_id": "1",
                "token_uri": f"{provider.url}/google/token",
            }
        )
    )
    return file
