"""Certificates for tests: an authority, and what it issues, as PEM files."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from replitree.tls import TlsFiles

HOST = "127.0.0.1"


class Authority:
    """An authority of its own, and a folder for what it issues."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._made = trustme.CA(organization_name=name)
        self._folder = folder
        self.file = str(folder / f"{name}.pem")
        self._made.cert_pem.write_to_path(self.file)

    def issue(self, name: str = "server", host: str = HOST, *, ended: bool = False) -> TlsFiles:
        """Issue a certificate, over the files of that name; `ended`: it has expired."""
        now = dt.datetime.now(dt.UTC)
        not_after = now - dt.timedelta(days=1) if ended else now + dt.timedelta(days=1)
        made = self._made.issue_cert(host, not_before=now - dt.timedelta(days=9), not_after=not_after)
        # ZooKeeper reads keys as PKCS#8 only.
        pkcs8 = load_pem_private_key(made.private_key_pem.bytes(), None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        chain = b"".join(each.bytes() for each in made.cert_chain_pems)
        certificate, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        # The new file takes the place of the old one at once, as those who renew certificates do it.
        for target, data in ((certificate, chain), (key, pkcs8)):
            draft = target.with_suffix(".draft")
            draft.write_bytes(data)
            draft.chmod(0o600)
            draft.replace(target)
        return TlsFiles(self.file, str(certificate), str(key))


__all__ = ["HOST", "Authority"]
