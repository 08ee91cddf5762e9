"""The oldest PySpark that is supported, in an environment of its own: statements of all pages do with it what they do here.

The environment has that PySpark alone; everything else is that of the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from tests.spark.test_jar import linked
from tools import jar

pytestmark = [pytest.mark.system, pytest.mark.nightly, pytest.mark.timeout(3600)]

INSTALL_S_MAX = 600.0
TESTS_S_MAX = 2700.0

FILES = (
    "test_sql_page.py",
    "test_delta_page.py",
    "test_catalog.py",
    "test_catalog_layouts.py",
    "test_catalog_rows.py",
    "test_catalog_statements.py",
    "test_catalog_changes.py",
    "test_named_tables.py",
    "test_streams.py",
    "test_stream_source.py",
)
"""The pages on SQL, what tests of the catalog say of it, and streams."""


def oldest_pyspark() -> str:
    """Return the version that the package's requirement begins with."""
    project = tomllib.loads((jar.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (requirement,) = project["optional-dependencies"]["spark"]
    found = re.fullmatch(r"pyspark>=(\d+\.\d+),<\d+", requirement)
    assert found, requirement
    return f"{found[1]}.0"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of an environment with that PySpark; after its own come those of this environment."""
    assert jar.main() == 0
    folder = tmp_path_factory.mktemp("oldest") / "environment"
    venv.EnvBuilder(symlinks=True).create(folder)
    command = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet", "--no-deps", "--no-compile"]
    subprocess.run([*command, f"pyspark=={oldest_pyspark()}"], check=True, timeout=INSTALL_S_MAX)
    (found,) = folder.glob("lib/python*/site-packages")
    (found / "others.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return found


def test_jar_links(packages: Path) -> None:
    assert linked(packages / "pyspark") == ""


def test_statements_of_all_pages_do_what_they_do_with_the_newest(packages: Path) -> None:
    python = str(packages.parents[2] / "bin" / "python")
    command = [python, "-c", "import pyspark; print(pyspark.__version__)"]
    seen = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert seen.stdout.strip() == oldest_pyspark()
    # Workers of Spark, and the planner of the catalog, run the Python that begins the session.
    given = {key: value for key, value in os.environ.items() if key not in ("PYSPARK_PYTHON", "SPARK_HOME")}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/spark/{name}" for name in FILES)],
        cwd=jar.ROOT,
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TESTS_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d+ passed in ", done.stdout, re.MULTILINE), "no test was left out"
