"""Who a process is to a store: what the providers' chains find, how it is renewed in time, and what is never shown."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from replitree.errors import NotAuthorized, StoreError
from replitree.storage.objects import StoreInDoubt, StoreLocation, identity, open_store
from replitree.storage.objects.bucket_uploads import MultipartUploads
from replitree.storage.objects.identity import ProviderAway
from replitree.storage.objects.opening import identity_for
from tests.storage.objects.azure_server import AzureServer
from tests.storage.objects.conftest import Pauses
from tests.storage.objects.gcs_server import GcsServer
from tests.storage.objects.providers import LONG_S, SOON_S, Provider, service_account
from tests.storage.objects.s3_server import Fault, S3Server

CLOUDS = ("AWS_", "GOOGLE_", "GCE_", "CLOUDSDK_", "AZURE_", "IDENTITY_", "IMDS_", "MSI_", "REPLITREE_STORE", "NO_GCE")
AT_S3 = StoreLocation.parse("s3://lake/tables")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No identity of this machine counts, and clients ask for credentials with each request."""
    for name in list(os.environ):
        if name.startswith(CLOUDS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    monkeypatch.setattr(identity, "ASK_AGAIN_S", 0.0)


Environment = Callable[[Mapping[str, str]], None]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Environment:
    def change(values: Mapping[str, str]) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return change


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(("key-one-0001", SOON_S), ("key-two-0002", LONG_S)) as made:
        yield made


def amazon_settings(kind: str, provider: Provider, folder: Path) -> dict[str, str]:
    """Return the variables of a machine whose identity is of this kind, and make the files that they name."""
    match kind:
        case "a web identity":
            (folder / "proof").write_text("proof-of-the-pod")
            return {
                "AWS_WEB_IDENTITY_TOKEN_FILE": str(folder / "proof"),
                "AWS_ROLE_ARN": "arn:aws:iam::1:role/r",
                "AWS_ENDPOINT_URL_STS": provider.url,
            }
        case "the container's role":
            return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{provider.url}/container"}
        case "the instance's role":
            return {
                "AWS_EC2_METADATA_DISABLED": "false",
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": provider.url,
                "AWS_METADATA_SERVICE_TIMEOUT": "30",
            }
        case "a credential process":
            script = folder / "give.py"
            script.write_text(PROCESS.format(counter=str(folder / "given")))
            (folder / "config").write_text(
                f"[profile etl]\ncredential_process = {sys.executable} {script}\nregion = eu-west-1\n"
            )
            return {"AWS_CONFIG_FILE": str(folder / "config"), "AWS_PROFILE": "etl"}
    raise AssertionError(kind)


PROCESS = """\
import datetime, json, pathlib
counter = pathlib.Path({counter!r})
number = counter.exists()
counter.write_text("x")
key, seconds = [("key-one-0001", 240), ("key-two-0002", 21600)][number]
ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
print(json.dumps(dict(Version=1, AccessKeyId=key, SecretAccessKey="secret-of-" + key, SessionToken="session-of-" + key,
    Expiration=ends.isoformat())))
"""
AMAZON = ("a web identity", "the container's role", "the instance's role", "a credential process")


@pytest.mark.parametrize("kind", AMAZON)
def test_amazons_chain_finds_an_identity_and_renews_it_before_its_end(
    kind: str, provider: Provider, server: S3Server, tmp_path: Path, environment: Environment
) -> None:
    environment(amazon_settings(kind, provider, tmp_path))
    assert identity_for(AT_S3).name == f"Amazon's chain: {kind}"
    server.state.keys = {"key-two-0002"}
    store = open_store(server.url())
    store.create("a", b"1")
    assert "Credential=key-two-0002/" in server.state.secrets[-1]
    # The first credentials end in minutes, so the library has renewed them when the request was sent.  Those of an instance it
    # takes as lasting longer than they say, for the case that the instance gives no others; the store's refusal ends that.
    assert len(server.state.requests) == (2 if kind == "the instance's role" else 1)
    assert "session-of-key-two-0002" not in server.state.secrets[-1]
    # Requests that the client library can't make are signed with the same identity.
    location = StoreLocation.parse(server.url())
    assert list(MultipartUploads(location, identity_for(location).current).begun("tables/")) == []
    assert "Credential=key-two-0002/" in server.state.secrets[-1]


def test_an_identity_that_the_store_calls_expired_is_exchanged_at_once(
    provider: Provider, server: S3Server, environment: Environment, tmp_path: Path
) -> None:
    """The clock of this machine is wrong, or a session was revoked: the library believes that it is valid."""
    provider.given = [("key-one-0001", LONG_S), ("key-two-0002", LONG_S), ("key-three-03", LONG_S)]
    environment(amazon_settings("the container's role", provider, tmp_path))
    server.state.keys = {"key-one-0001"}
    store = open_store(server.url())
    store.create("a", b"1")
    server.state.keys = {"key-two-0002"}
    store.create("b", b"2")
    # A second time within a minute it is a refusal: the chain would give other keys for ever.
    server.state.keys = set()
    with pytest.raises(NotAuthorized, match="refuses to store c"):
        store.create("c", b"3")
    assert sorted(server.state.objects) == ["tables/a", "tables/b"]


def test_a_provider_that_does_not_answer_refuses_nobody(
    provider: Provider,
    server: S3Server,
    environment: Environment,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider.away = True
    environment(amazon_settings("a web identity", provider, tmp_path) | {"AWS_MAX_ATTEMPTS": "1"})
    with pytest.raises(
        ProviderAway, match="Amazon's chain: a web identity gives no credentials now: ResponseParserError"
    ):
        open_store(server.url())
    assert "secret-of-an-error" not in caplog.text
    provider.away = False
    open_store(server.url()).create("a", b"1")


def test_a_request_waits_for_its_provider_and_is_certainly_not_done_without_it(
    server: S3Server, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Flaky()
    monkeypatch.setattr("replitree.storage.objects.opening.amazon_source", lambda *_, **__: source)
    store = open_store(server.url(), wait=pauses)
    source.fails = 3
    store.create("a", b"1")
    assert store.get("a") == b"1"
    assert len(pauses) >= 1
    impatient = open_store(server.url(), wait=pauses, patience_s=0.0)
    source.fails = 1000
    with pytest.raises(StoreError, match="a flaky provider is away") as caught:
        impatient.create("b", b"2")
    assert not isinstance(caught.value, StoreInDoubt)
    source.fails = 0
    assert store.get("b") is None


class Flaky:
    """A source whose provider fails so many times."""

    name = "a flaky provider"
    is_lasting = False
    fails = 0

    def current(self) -> identity.Credential:
        if self.fails:
            self.fails -= 1
            raise ProviderAway("a flaky provider is away")
        return identity.Keys("access", "secret")


def test_what_was_done_before_a_refusal_stays_in_doubt(server: S3Server, pauses: Pauses) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "test-access", "AWS_SECRET_ACCESS_KEY": "test-secret"}
    store = open_store(server.url(), environment=keys, wait=pauses)
    server.state.faults += [("PUT", Fault.LOSE_ANSWER), ("PUT", Fault.DENY)]
    with pytest.raises(StoreInDoubt, match="refuses to store a"):
        store.create("a", b"1")
    assert store.get("a") == b"1"


def test_the_server_of_a_url_is_asked_whatever_the_environment_names(
    server: S3Server, environment: Environment
) -> None:
    environment({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    environment({"AWS_ACCESS_KEY_ID": "AKIAENVIRONMENT1", "AWS_SECRET_ACCESS_KEY": "y"})
    open_store(server.url()).create("a", b"1")
    assert server.state.objects == {"tables/a": b"1"}


def test_profiles_and_static_keys_of_files_are_found(tmp_path: Path, environment: Environment) -> None:
    file = tmp_path / "credentials"
    file.write_text("[etl]\naws_access_key_id = AKIAOFTHEPROFILE\naws_secret_access_key = hid%den\n")
    environment({"AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_PROFILE": "etl"})
    found = identity_for(AT_S3)
    assert (found.name, found.current()) == (
        "Amazon's chain: a profile of the credentials file",
        identity.Keys("AKIAOFTHEPROFILE", "hid%den"),
    )
    # What was written down for replitree comes before the chain.
    other = tmp_path / "ours"
    other.write_text("[default]\naws_access_key_id = AKIAOURS0000EXAM\naws_secret_access_key = x\n")
    environment({"REPLITREE_STORE_CREDENTIALS": str(other)})
    assert identity_for(AT_S3).name == f"keys of {other} (AKIA…EXAM)"
    environment({"AWS_ACCESS_KEY_ID": "AKIAENVIRONMENT1", "AWS_SECRET_ACCESS_KEY": "y"})
    assert identity_for(AT_S3).name == "keys of the environment (AKIA…ENT1)"


@pytest.mark.parametrize("url", ["s3://lake", "gs://lake", "az://lake?account=example"])
def test_without_an_identity_it_is_said_what_to_do(url: str) -> None:
    with pytest.raises(NotAuthorized, match=r"no credentials for .*: (set|let) [A-Z_]+.* give this machine a"):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("s3://lake", "botocore", "aws"),
        ("gs://lake", "google.auth", "gcs"),
        ("az://lake?account=example", "azure.identity", "azure"),
    ],
)
def test_without_its_library_a_store_says_what_to_install(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as of a package that is not installed
    with pytest.raises(NotAuthorized, match=rf"pip install 'replitree\[{extra}\]'"):
        open_store(url)


# --- Google -------------------------------------------------------------------------------------------------------------------


def test_googles_service_account_is_found_and_its_token_renewed(
    provider: Provider, tmp_path: Path, environment: Environment
) -> None:
    provider.given = [("token-one", 60), ("token-two", LONG_S)]
    environment({"GOOGLE_APPLICATION_CREDENTIALS": str(service_account(tmp_path, provider))})
    with GcsServer() as server:
        location = StoreLocation.parse(server.url())
        assert "robot@example.test" in identity_for(location).name
        server.state.tokens = {"token-two"}
        store = open_store(server.url())
        store.create("a", b"1")
        assert store.get("a") == b"1"
        assert list(MultipartUploads(location, identity_for(location).current).begun("tables/")) == []
        assert server.state.secrets[-1] == "Bearer token-two"
        # A token that the store takes no longer, though it should last.
        provider.given = [("token-three", LONG_S)]
        server.state.tokens = {"token-three"}
        assert store.get("a") == b"1"
        server.state.tokens = set()
        with pytest.raises(NotAuthorized, match="refuses to read a"):
            store.get("a")


GOOGLE_METADATA = """\
from replitree.storage.objects import open_store
from replitree.storage.objects.opening import identity_for
from replitree.storage.objects.location import StoreLocation
import sys
store = open_store(sys.argv[1])
store.create("a", b"1")
print(identity_for(StoreLocation.parse(sys.argv[1])).name)
"""


def test_the_service_account_of_googles_machine_is_found(provider: Provider, tmp_path: Path) -> None:
    provider.given = [("token-of-the-machine", LONG_S)]
    with GcsServer() as server:
        server.state.tokens = {"token-of-the-machine"}
        # Google's library looks at these variables when it is loaded.
        variables = {
            "GCE_METADATA_HOST": provider.host,
            "GCE_METADATA_IP": provider.host,
            "NO_GCE_CHECK": "false",
            "GCE_METADATA_TIMEOUT": "30",
        }
        done = subprocess.run(
            [sys.executable, "-c", GOOGLE_METADATA, server.url()],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert server.state.objects == {"tables/a": b"1"}
    assert done.stdout.startswith("Google's default credentials: ")


# --- Azure --------------------------------------------------------------------------------------------------------------------


def test_azures_managed_identity_is_found_and_its_token_renewed(provider: Provider, environment: Environment) -> None:
    provider.given = [("token-one", 120), ("token-two", LONG_S)]
    environment(
        {
            "IDENTITY_ENDPOINT": f"{provider.url}/azure/token",
            "IDENTITY_HEADER": "proof",
            "AZURE_TOKEN_CREDENTIALS": "prod",
        }
    )
    with AzureServer() as server:
        assert identity_for(StoreLocation.parse(server.url())).name == "Azure's chain: ManagedIdentity"
        server.state.tokens = {"token-one", "token-two"}
        store = open_store(server.url())
        store.create("a", b"1")
        assert server.state.secrets[-1] == "Bearer token-two"
        server.state.tokens = set()
        with pytest.raises(NotAuthorized, match="refuses to read a"):
            store.get("a")


def test_azures_signature_is_sent_and_never_shown(environment: Environment) -> None:
    environment({"AZURE_STORAGE_SAS_TOKEN": "sv=2024-11-04&sig=hidden%2Bsignature"})
    with AzureServer() as server:
        store = open_store(server.url())
        store.create("a", b"1")
        assert "sig=hidden" in server.state.requests[-1]
        server.state.faults.append(("GET", Fault.DENY))
        with pytest.raises(NotAuthorized) as caught:
            store.get("a")
    assert "hidden" not in f"{caught.value} {identity_for(StoreLocation.parse(server.url())).name}"


@pytest.mark.parametrize("variable", ["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"])
def test_what_is_no_key_of_azures_is_refused_and_not_shown(variable: str, environment: Environment) -> None:
    environment({variable: "hidden!"})
    with pytest.raises(NotAuthorized, match=variable) as caught:
        open_store("az://lake?account=example")
    assert "hidden" not in str(caught.value)


# --- what is shown ------------------------------------------------------------------------------------------------------------


def test_no_error_and_no_log_shows_what_a_provider_gave(
    provider: Provider, server: S3Server, tmp_path: Path, environment: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "replitree")
    environment(amazon_settings("the container's role", provider, tmp_path))
    store = open_store(server.url(), patience_s=0.0)
    store.create("a", b"1")
    server.state.keys = set()
    texts = [repr(store), repr(identity_for(AT_S3).current()), caplog.text]
    calls: list[Callable[[], object]] = [lambda: store.get("a"), lambda: store.create("b", b"2")]
    for call in calls:
        with pytest.raises(NotAuthorized) as caught:
            call()
        texts.append(str(caught.value))
    script = tmp_path / "fails.py"
    script.write_text("import sys; sys.exit('secret-of-a-process')")
    (tmp_path / "failing").write_text(f"[profile broken]\ncredential_process = {sys.executable} {script}\n")
    environment({"AWS_CONFIG_FILE": str(tmp_path / "failing"), "AWS_PROFILE": "broken"})
    with pytest.raises((NotAuthorized, ProviderAway)) as failed:
        open_store(server.url())
    texts.append(str(failed.value))
    for text in texts:
        assert "secret-of" not in text
        assert "session-of" not in text
