"""`specserve bench model`: sizes against the model itself, and the bounds by hand."""

from __future__ import annotations

import json

import pytest
import torch

from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve_bench.roofline.bounds import bound, free_rows
from specserve_bench.roofline.examine import examine
from specserve_bench.roofline.machine import Machine, measure_machine
from specserve_bench.roofline.work import Work
from specserve_server.cli import main
from specserve_workbench.testing.toy import write_checkpoint

WORK = Work(weight_bytes=1000, kv_bytes=10, weight_flops=2000, attention_flops=4)
MACHINE = Machine(threads=1, bytes_per_second=1e3, flops=1e4)


def test_a_step_takes_its_bytes_or_its_arithmetic():
    one = bound(WORK, MACHINE, num_requests=1, rows=1, context=100)
    assert one.memory_seconds == pytest.approx(2.0)  # 1000 of weights, 1000 of the cache
    assert one.arithmetic_seconds == pytest.approx(0.24)  # 2000 and 100 * 4
    assert (one.by, one.tokens_per_second) == ("memory", pytest.approx(0.5))
    many = bound(WORK, MACHINE, num_requests=8, rows=16, context=100)
    assert (many.memory_seconds, many.arithmetic_seconds) == (pytest.approx(9.0), pytest.approx(30.72))
    assert (many.by, many.tokens_per_second) == ("arithmetic", pytest.approx(8 / 30.72))


@pytest.mark.parametrize("num_requests", [1, 3, 8])
def test_free_rows_are_the_most_that_memory_still_bounds(num_requests):
    rows = free_rows(WORK, MACHINE, num_requests, 100)
    assert bound(WORK, MACHINE, num_requests, rows, 100).by == "memory"
    assert bound(WORK, MACHINE, num_requests, rows + 1, 100).by == "arithmetic"


def test_a_row_is_free_even_where_arithmetic_bounds_it():
    assert free_rows(WORK, MACHINE._replace(flops=1.0), 1, 100) == 1


@pytest.mark.parametrize("tied", [False, True])
def test_sizes_are_those_of_the_model(tmp_path, tied):
    """Against the tensors themselves."""
    from safetensors import safe_open

    path = write_checkpoint(tmp_path / "toy", tie_word_embeddings=tied)
    found = examine(EngineConfig(model=str(path), dtype="float32"))
    with safe_open(next(path.glob("*.safetensors")), "pt") as file:
        sizes = {name: file.get_tensor(name).numel() for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
    embedding = 0 if tied else sizes["model.embed_tokens.weight"]
    read = sum(sizes.values()) - embedding
    assert found.parameters == sum(sizes.values())
    assert (found.work.weight_bytes, found.work.weight_flops) == (4 * read, 2 * read)
    config = json.loads((path / "config.json").read_text())
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    assert found.work.kv_bytes == 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * head_dim * 4
    assert found.work.attention_flops == 4 * config["num_hidden_layers"] * config["num_attention_heads"] * head_dim


def test_a_machine_is_measured_and_its_threads_are_left_as_they_were():
    before = torch.get_num_threads()
    machine = measure_machine(torch.float32, 1)
    assert torch.get_num_threads() == before
    assert machine.bytes_per_second > 1e7
    assert machine.flops > 1e7


def test_what_it_cannot_examine_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="CPUs only"):
        examine(EngineConfig(device="cuda"))
    with pytest.raises(ConfigError, match="nothing"):
        examine(EngineConfig(model=str(tmp_path / "nothing")))


def test_the_command_prints_every_figure(capsys):
    assert main(["bench", "model", "demo", "--threads", "1", "--concurrency", "1", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [step["num_requests"] for step in found["steps"]] == [1, 4]
    for step in found["steps"]:
        seconds = max(step["memory_seconds"], step["arithmetic_seconds"])
        assert step["tokens_per_second"] == pytest.approx(step["num_requests"] / seconds)
        assert step["free_draft_tokens"] >= 0
