"""The client's package is imported without what kretain does not use; whoever else uses it finds all of it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "use",
    [
        "from kafka import *; KafkaConsumer",
        "from kafka import KafkaConsumer, errors",
        "import kafka; kafka.__version__; kafka.KafkaProducer; kafka.errors",
        "import kafka.net, kafka; kafka.TopicPartition",
    ],
)
def test_kafka_python_stays_complete_for_scripts_that_import_it(use: str) -> None:
    said = "import kafka, sys; assert 'kafka.producer' not in sys.modules"
    for code in (f"import retention_cli.brokers\n{said}\n{use}", f"{use}\nimport retention_cli.brokers\n{use}"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
