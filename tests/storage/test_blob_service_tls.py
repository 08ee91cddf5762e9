"""A blob service by TLS, and the places of a group's file that name one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replitree.errors import BadInput
from replitree.tablet.group.admission import Standing
from replitree.tablet.group.member import Failed
from replitree.tablet.members.directory import BlobDirectory, make_blob_directory
from replitree.tablet.members.member import BlobMember
from replitree.tablet.members.places import MemberPlace, close_member, open_place
from replitree.tls import Contexts, TlsFiles
from tests.certificates import Authority
from tests.storage.blob_providers import GROUP
from tests.storage.blob_service_provider import TOKEN, Services


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def services(authority: Authority) -> Iterator[Services]:
    """Services that want a certificate from their clients."""
    services = Services(Contexts(authority.issue(), wants_certificates=True))
    yield services
    services.close()


def standing(folder: Path, address: str, **files: str) -> Standing | Failed:
    (folder / "token").write_text(TOKEN)
    member: BlobMember = open_place(folder, MemberPlace(service=address, token_file="token", **files))
    try:
        return member.standing()
    finally:
        close_member(member)


def test_member_is_asked_by_tls(tmp_path: Path, authority: Authority, services: Services) -> None:
    make_blob_directory(tmp_path / "0", GROUP, 0, "d0")
    address = services.start(BlobDirectory(tmp_path / "0"))
    assert address.startswith("https://")
    authority.issue("client")
    own = {"tls_certificate": "client.crt", "tls_key": "client.key"}
    found = standing(tmp_path, address, tls_ca="ca.pem", **own)
    assert isinstance(found, Standing)
    assert found.incarnation == "d0"
    for files, reason in (
        ({"tls_ca": "ca.pem"}, "wants a certificate from its clients|did not answer"),
        ({"tls_ca": Authority(tmp_path, "other").file, **own}, "issued by none of the authorities"),
    ):
        refused = standing(tmp_path, address, **files)
        assert isinstance(refused, Failed)
        assert any(each in refused.reason for each in reason.split("|")), refused.reason
    clear = standing(tmp_path, address.removeprefix("https://"))
    assert isinstance(clear, Failed)
    assert "this port speaks TLS only" in clear.reason


def test_certificate_without_a_key_is_a_mistake_of_the_group_s_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    place = MemberPlace(service="https://127.0.0.1:1", token_file="token", tls_certificate="client.crt")
    with pytest.raises(BadInput, match="tls_certificate is set and tls_key is not"):
        open_place(tmp_path, place)


def test_plans_have_the_paths_of_keys_and_never_keys(authority: Authority) -> None:
    import pickle

    from replitree.client.transport.http import HttpClient

    files = authority.issue()
    sent = pickle.dumps(HttpClient("secret", files))
    assert files.key.encode() in sent
    assert b"PRIVATE" not in sent
    assert pickle.loads(sent).tls == TlsFiles(files.ca, files.certificate, files.key)
