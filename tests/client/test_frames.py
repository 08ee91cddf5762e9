"""Spark registers itself with the client; where it is missing, the error names the extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

from replitree.client.transport.frames import frames, is_frame
from replitree.spark.frames import FRAMES


def test_spark_is_found_by_its_entry_point() -> None:
    assert frames() is FRAMES


def test_rows_in_memory_are_no_frame() -> None:
    assert not is_frame({"k": [1]})


@pytest.mark.parametrize(
    "code",
    [
        "from replitree.client.transport.frames import frames; frames()",
        "import replitree; replitree.spark_session()",
        "from replitree.spark import to_df",
    ],
)
def test_missing_spark_is_an_error_that_names_the_extra(code: str) -> None:
    hidden = f"import sys; sys.modules['pyspark'] = None\n{code}"
    ran = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 1
    assert "SparkMissing" in ran.stderr.splitlines()[-1]
    assert "replitree[spark]" in ran.stderr.splitlines()[-1]
