"""What all tests share: how hypothesis searches, golden files, object stores, which files begin first or run together.

Hypothesis draws the same examples in every run of the gate (profile `gate`, the default), so that only a change of the code can
turn a test red; `make nightly` draws new ones (``--hypothesis-profile search``).
"""

from __future__ import annotations

import difflib
import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from replitree.coordination import embedded
from tests.after_the_gate import AFTER_THE_GATE
from tests.at_night import AT_NIGHT, is_among
from tests.examples import GATE
from tests.shared.stores import FAULTY, FOLDER, credentials, empty_store, kinds_of
from tests.storage.objects.seaweed import Seaweed
from tools.class_archive import java_options, zookeeper_options

pytest.register_assert_rewrite("tests.verify.small_models")

hypothesis.settings.register_profile(
    "gate", max_examples=GATE, derandomize=True, deadline=None, database=None, print_blob=True
)
hypothesis.settings.register_profile("search", max_examples=2_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("gate")

os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())
# No test asks the network whether this machine is one of a cloud; those of identities have such machines of their own.
os.environ.update(
    AWS_EC2_METADATA_DISABLED="true", NO_GCE_CHECK="true", AZURE_TOKEN_CREDENTIALS="EnvironmentCredential"
)
embedded.JAVA_FLAGS += zookeeper_options()

LONG = (
    "spark/test_overwrite.py",
    "spark/test_catalog.py",
    "verify/histories/test_spark_system.py",
    "storage/test_mutate_spark.py",
    "storage/test_spark.py",
    "spark/test_standalone.py",
    "spark/test_standalone_statements.py",
    "spark/test_streams_elsewhere.py",
    "spark/test_store.py",
    "client/test_shared_system.py",
    "spark/test_s3a.py",
    "spark/test_stream_deaths.py",
    "spark/test_connect.py",
    "spark/test_read.py",
    "spark/test_write.py",
    "spark/test_damage.py",
    "spark/test_lacking.py",
    "spark/test_random_damage.py",
    "spark/test_catalog_statements.py",
    "spark/test_feed.py",
    "spark/test_named_tables.py",
    "spark/test_stream_source.py",
    "spark/test_stream_sources_page.py",
    "spark/test_streams.py",
    "spark/test_streams_page.py",
    "spark/test_times.py",
    "spark/test_warm_session.py",
    "spark/test_evolve.py",
    "spark/test_optimize.py",
    "storage/test_blob_member.py",
    "cli/test_system.py",
    "cli/test_up_system.py",
    "faults/test_nemesis.py",
    "shared/test_rounds.py",
    "machines/rounds/test_rounds.py",
    "faults/test_full_disk.py",
    "coordination/test_differential.py",
    "cli/test_restore_killed_system.py",
    "cli/test_repair_system.py",
    "client/test_moving_system.py",
    "client/test_shared_merges_system.py",
    "damage/test_damage.py",
    "faults/test_judged.py",
    "faults/test_deposed_leader.py",
    "test_java.py",
    "replica/test_recovery.py",
    "storage/test_blob_group.py",
    "verify/packed/test_golden.py",
)
"""The files that take longest: they begin first, so that at the end no worker waits long for another (`make system`).

Spark comes first: its files run on four workers, one after the other (`SparkTogether`), and take longer than any other file.
Those that share a session stand together, before `test_local_cluster`, which ends it.  The checker's tests compute and wait for
nothing, so they come last.
"""

SPARK_ELSEWHERE = (
    "tests/verify/histories/test_spark_system.py",
    "tests/storage/test_mutate_spark.py",
    "tests/storage/test_spark.py",
    "tests/spark/test_standalone.py",
    "tests/spark/test_standalone_statements.py",
    "tests/spark/test_streams_elsewhere.py",
    "tests/spark/test_standalone_deaths.py",
)
"""Files that one worker runs: three begin sessions without replicas, and four share a standalone cluster of Spark's.

The Java machine keeps the settings of its first session; those of the first file limit nothing.
"""

SPARK_IN_SQL = (
    "tests/spark/test_catalog.py",
    "tests/spark/test_catalog_rows.py",
    "tests/spark/test_catalog_layouts.py",
    "tests/spark/test_catalog_scan.py",
    "tests/spark/test_sql_page.py",
    "tests/spark/test_planner.py",
    "tests/spark/test_jar.py",
    "tests/spark/test_optimize.py",
    "tests/spark/test_evolve.py",
    "tests/spark/test_store_write.py",
)
"""Files that one worker runs: those of the catalog, and some others, so that the workers of Spark take about equally long.

Theirs take 225 s of CPU, those with a store 120 s.
"""

PACKED = ("tests/bench/test_verify.py", "tests/cli/test_verify_packed.py")
"""Files beside `tests/verify/packed` that one worker runs, too: they search packed models, which are compiled once."""

SPARK_WITH_A_STORE = (
    "tests/spark/test_store.py",
    "tests/spark/test_store_damage.py",
    "tests/bench/test_read_store.py",
)
"""Files that a third worker runs; a fourth one runs the files that share a session, which take longest.

Its Java machine begins with a store's credentials, which the processes of Python tasks inherit.  A file whose tasks must not
have them runs on one of the others.
"""

Golden = Callable[[str, str], None]
"""Compares a text with the file of this name beside the test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let `make golden` rewrite what tests compare with."""
    parser.addoption("--rewrite-golden", action="store_true", help="write golden files instead of comparing with them")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for no garbage while tests are collected, and never in what was: it stays, and is most of what a worker has."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the longest tests to the night, other long ones to `make test`, and let long files begin first."""
    for item in items:
        if is_among(item.nodeid, AT_NIGHT):
            item.add_marker(pytest.mark.nightly)
        if is_among(item.nodeid, AFTER_THE_GATE):
            item.add_marker(pytest.mark.slow)
    places = {str(Path(__file__).parent / name): place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(str(item.path), len(LONG)))


class SparkTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Each file on one worker, files of Spark on one of four workers: a Java machine that is warm is several times faster.

    One has the tables in an object store, whose files begin sessions with settings of their own, one has the catalog, one the
    files that begin sessions elsewhere, and one all else.  A file whose Java is in processes of its own goes to any worker.

    A search of the checker, or a life of a cluster whose files are damaged, shares nothing with others: it goes to the next
    free worker, so that all workers end together.  Packed models are compiled, which takes longer than to search them: once.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if file in SPARK_WITH_A_STORE:
            return "spark with a store"
        if file in SPARK_IN_SQL:
            return "spark in SQL"
        if file in SPARK_ELSEWHERE:
            return "spark elsewhere"
        if "spark" in file and not file.endswith(("test_connect.py", "test_s3a.py", "test_stream_deaths.py")):
            return "spark"
        if file in PACKED or file.startswith("tests/verify/packed/"):
            return "packed"
        apart = file.startswith(("tests/verify/", "tests/damage/")) and not file.endswith("_system.py")
        return nodeid if apart else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Take `SparkTogether` for ``--dist loadfile``."""
    return SparkTogether(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with a golden file beside the test, or write the file with `--rewrite-golden`.

    Use: ``golden("golden/insert_with_lost_answer.txt", text)``.
    """
    folder = request.path.parent
    rewrite = bool(request.config.getoption("--rewrite-golden"))

    def compare(name: str, text: str) -> None:
        file = folder / name
        if rewrite:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        _assert_same(file, text)

    return compare


def _assert_same(file: Path, text: str) -> None:
    expected = file.read_text(encoding="utf-8") if file.exists() else ""
    difference = difflib.unified_diff(expected.splitlines(), text.splitlines(), file.name, "now", lineterm="")
    if text != expected:
        pytest.fail(
            "\n".join(["differs from its golden file; if that is right: make golden", *difference]), pytrace=False
        )


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """Run a real S3 server, from the first test on that needs one."""
    with Seaweed(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=kinds_of(FOLDER, at_night=(FAULTY,)))
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Give the URL of an empty object store, with credentials; of which kind, a test can say by `tests.shared.stores.on`."""
    with credentials(), empty_store(request.param, tmp_path, lambda: request.getfixturevalue("s3_server")) as url:
        yield url


@pytest.fixture
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock stand still by which a client's patience is counted: what is left of it is all of it."""
    still = SimpleNamespace(monotonic=lambda: 0.0, sleep=time.sleep)
    monkeypatch.setattr("replitree.client.transport.routing.time", still)
