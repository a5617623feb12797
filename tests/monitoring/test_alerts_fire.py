"""Alerts fire where they should and not beside it, as rules_test.yaml says: in Prometheus' own evaluation.

It needs promtool, of the package prometheus of Debian; no package of Python has it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from monitoring_files import MONITORING, alerts

HERE = Path(__file__).parent
PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", str(MONITORING / "prometheus/scrape.yaml")),
        ("check", "rules", str(MONITORING / "prometheus/rules.yaml")),
        ("test", "rules", "rules_test.yaml"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_promtool_agrees(arguments: tuple[str, ...]) -> None:
    done = subprocess.run([PROMTOOL, *arguments], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    cases = [
        case
        for test in yaml.safe_load((HERE / "rules_test.yaml").read_text())["tests"]
        for case in test["promql_expr_test"]
    ]
    expected = " ".join(sample["labels"] for case in cases for sample in case["exp_samples"])
    assert [name for name in alerts() if f'"{name}"' not in expected] == []
