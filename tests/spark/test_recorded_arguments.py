"""What `replitree.spark.recorded` says of wrong arguments, without a JVM."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from replitree.errors import BadInput
from replitree.spark import recorded
from replitree.wire.history_recorder import Recorder


def test_a_recorded_session_takes_a_session_and_a_recorder(tmp_path: Path) -> None:
    wrong = cast(Any, None)
    recorder = Recorder(tmp_path / "history.jsonl")
    with closing(recorder), pytest.raises(BadInput, match="spark is a SparkSession, not None"):
        recorded(wrong, recorder)
    with pytest.raises(BadInput, match="recorder is a Recorder, not None"):
        recorded(cast(Any, type("SparkSession", (), {})()), wrong)
