"""`specserve doctor FILE.gguf` says what the file holds, and why one cannot be served."""

from __future__ import annotations

import pytest
from conversion import convert
from crafted import Tensor, file, info

from specserve.config import EngineConfig
from specserve_server.config import ServerConfig
from specserve_workbench.doctor.case import Case
from specserve_workbench.doctor.model_directory import directory_rows
from specserve_workbench.testing.toy import write_checkpoint


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def rows_of(path):
    return {row.check: row for row in directory_rows(Case(EngineConfig(model=str(path)), ServerConfig()))}


def test_a_file_is_told_by_its_architecture_its_parameters_and_the_share_of_each_type(tmp_path):
    rows = rows_of(convert(write_checkpoint(tmp_path / "model"), tmp_path / "model.gguf", "Q8_0"))
    assert {row.status for check, row in rows.items() if check != "chat template"} == {"ok"}
    assert rows["config"].found.startswith("llama, 2 layers, 128 wide")
    assert "M parameters" in rows["weights"].found
    assert "1 % F32, 99 % Q8_0" in rows["weights"].found


def test_a_crafted_file_fails_in_the_words_of_serve(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(file([], [info(Tensor(offset=1 << 40))]))
    row = rows_of(path)["directory"]
    assert row.status == "failed"
    assert "is incomplete: tensor token_embd.weight ends at byte" in row.found
