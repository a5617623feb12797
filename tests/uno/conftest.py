"""A toy target with draft adapters, and the helpers of other plugins' tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path += [str(Path(__file__).parent.parent / name) for name in ("lora", "eagle", "hybrid_attn", "faults", "models")]

from draft_adapters import write_draft_adapter
from specserve_workbench.testing.toy import write_checkpoint


@pytest.fixture(scope="session")
def uno_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def draft_adapter(uno_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_draft_adapter(tmp_path_factory.mktemp("draft") / "adapter", uno_target)
