"""`make lowest`: the lowest versions that pyproject.toml allows, in a fresh environment, and a selection of tests with them.

The product's own requirements and the extras of `EXTRAS` are installed at their lowest versions, what these need at any
version that fits.  Spark's lowest version has a test of its own (`tests/spark/test_oldest_pyspark.py`).  Warnings are no errors
here: older versions deprecate other things.

Needs pip and a registry; changes nothing outside of its temporary folder.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("aws", "azure", "duckdb", "gcs", "otel", "pandas", "polars")
TOOLS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist", "pyyaml")
"""What the tests need, at the versions of constraints.txt."""

TESTS = (
    "tests/test_decoding.py",
    "tests/cli/test_completion.py",
    "tests/cli/test_output.py",
    "tests/client/test_cluster.py",
    "tests/client/test_engines.py",
    "tests/client/test_insert.py",
    "tests/client/test_scan.py",
    "tests/client/test_snapshot.py",
    "tests/coordination/test_requests.py",
    "tests/deploy/test_deploy.py",
    "tests/replica/test_check_config.py",
    "tests/replica/test_config.py",
    "tests/replica/test_fast_path.py",
    "tests/replica/test_merges.py",
    "tests/replica/test_metrics.py",
    "tests/replica/test_tracing.py",
    "tests/storage/objects/test_identity.py",
    "tests/storage/objects/test_stores.py",
    "tests/storage/test_content_hash.py",
    "tests/storage/test_encode.py",
    "tests/storage/test_evolve_sql.py",
    "tests/storage/test_expression.py",
    "tests/storage/test_merge.py",
    "tests/storage/test_mutation.py",
    "tests/storage/test_predicate.py",
    "tests/storage/test_sql_parser.py",
    "tests/storage/test_sums.py",
    "tests/storage/test_types.py",
)
"""Every package that the product needs is used by one of them."""

REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?>=(?P<lowest>[0-9.]+)(?:,.*)?")


def lowest_versions(requirements: list[str]) -> list[str]:
    """Return a pin of the lowest version of each requirement; every one of them has to have a lower bound.

    >>> lowest_versions(["typer>=0.15,<0.29", "numpy>=1.26"])
    ['typer==0.15', 'numpy==1.26']
    """
    found = [REQUIREMENT.fullmatch(each) for each in requirements]
    assert all(found), f"a requirement has no lower bound: {requirements}"
    return [f"{each['name']}=={each['lowest']}" for each in found if each]


def requirements_of_product() -> list[str]:
    """Return the requirements of the product, and of the extras whose lowest versions are tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: list[str] = [*project["dependencies"]]
    for extra in EXTRAS:
        found += project["optional-dependencies"][extra]
    return found


def run(*command: str | Path) -> int:
    """Run a command in the checkout; return its exit status."""
    return subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode


def main() -> int:
    """Install the lowest versions and run the tests; return the exit status."""
    pins = lowest_versions(requirements_of_product())
    with tempfile.TemporaryDirectory(prefix="replitree-lowest-") as folder:
        environment, constraints = Path(folder) / "environment", Path(folder) / "lowest.txt"
        constraints.write_text("\n".join(pins) + "\n")
        names = re.compile("|".join(re.escape(name) for name in TOOLS), re.IGNORECASE)
        fixed = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        tools = [line for line in fixed if names.fullmatch(line.partition("==")[0])]
        venv.EnvBuilder(symlinks=True).create(environment)
        python = environment / "bin" / "python"
        install = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
        status = run(*install, "--constraint", constraints, *pins, *tools)
        if status:
            print(
                "lowest: the lowest versions can't be installed together: raise a bound of pyproject.toml",
                file=sys.stderr,
            )
            return status
        print(f"lowest: {', '.join(pins)}", flush=True)
        sources = f"{ROOT / 'src'}:{ROOT / 'verify'}:{ROOT}"
        options = ("-q", "-p", "no:cacheprovider", "-W", "default", "-m", "not (slow or system or nightly)")
        return run("env", f"PYTHONPATH={sources}", python, "-m", "pytest", *options, *TESTS)


if __name__ == "__main__":
    sys.exit(main())
