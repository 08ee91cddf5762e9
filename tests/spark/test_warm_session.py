"""What a session of these tests leaves to the next one in its process."""

from __future__ import annotations

import pytest
from pyspark import SparkConf

from tests.spark.conftest import SharedSpark
from tests.spark.warm_session import DAEMON

pytestmark = pytest.mark.system


def test_the_next_session_has_the_daemon_of_spark(shared_spark: SharedSpark) -> None:
    session = shared_spark.session()
    assert session.sparkContext.getConf().get(DAEMON) == "tests.spark.warm_daemon"
    assert SparkConf().get(DAEMON) is None
