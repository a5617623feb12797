"""Hooks, options, plans and what stops the start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from specserve.batch.lora_plan import LoraPlan, Segment
from specserve.errors import ConfigError
from specserve.models.lowrank_delta import LowRankDelta
from specserve.plugins.options import convert
from specserve.plugins.settings import parse_settings
from specserve_lora.adapter_dir import CONFIG, WEIGHTS
from specserve_lora.options import LoraOptions
from specserve_lora.planning import SegmentPlanner
from specserve_lora.plugin import LoraPlugin
from specserve_server.cli import main
from specserve_workbench.testing.engines import make_engine
from toy_adapters import lora_engine, lora_options, write_adapter

if TYPE_CHECKING:
    from pathlib import Path


def options(*settings: str) -> Any:
    return convert("lora", LoraOptions, parse_settings([f"lora.{setting}" for setting in settings]).get("lora", {}))


def test_the_defaults_hold_by_themselves() -> None:
    assert options() == LoraOptions()


def test_every_option_is_read_from_the_command_line(tmp_path: Path) -> None:
    for name in (CONFIG, WEIGHTS):
        (tmp_path / name).touch()
    adapters = (f"adapters.a={tmp_path}", f'adapters."b.c"={tmp_path}')
    got = options(*adapters, "root=/usr", "max_loaded=3", "max_rank=16", "max_memory=512M")
    assert got == LoraOptions(
        adapters={"a": str(tmp_path), "b.c": str(tmp_path)}, root="/usr", max_loaded=3, max_rank=16, max_memory="512M"
    )


@pytest.mark.parametrize(("made", "said"), [
    ((), "adapter_config.json. An adapter is a directory that PEFT's save_pretrained wrote."),
    ((CONFIG,), "there is no file "),
    ((CONFIG, "adapter_model.bin"), "adapter_model.bin is a pickle"),
])  # fmt: skip
def test_an_adapter_without_its_files_is_told_with_the_options(
    tmp_path: Path, made: tuple[str, ...], said: str
) -> None:
    for name in made:
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=r"lora\.adapters\.a: ") as caught:
        options(f"adapters.a={tmp_path}")
    assert said in str(caught.value)


@pytest.mark.parametrize(("setting", "said"), [
    ("max_loaded=0", "must be a whole number from 1"),
    ("max_loaded=1025", " to 1024 "),
    ("max_rank=0", "must be a whole number from 1"),
    ("max_rank=257", " to 256 "),
    ("max_memory=much", "max_memory must be a positive number"),
    ("max_memory=0", "max_memory must be a positive number"),
    ('adapters."a b"=/x', "adapters: 'a b' is not an adapter's name"),
    ("adapters.a:b=/x", "adapters: 'a:b' is not an adapter's name"),
    ("adapter.a=/x", "lora.adapter is not an option"),
])  # fmt: skip
def test_an_option_out_of_range_is_named(setting: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options(setting)
    assert said in str(caught.value)


def test_a_bad_adapter_stops_the_start(toy_model, tmp_path):
    for path, said in ((tmp_path / "none", "there is no directory"), (toy_model, "there is no file")):
        with pytest.raises(ConfigError, match=rf"lora\.adapters\.x: .*{said}"):
            lora_engine(toy_model, {"x": path})
    write_adapter(tmp_path, toy_model, rank=17)
    with pytest.raises(ConfigError, match=r"lora\.adapters\.x: .*has rank 17, and lora\.max_rank allows 16"):
        lora_engine(toy_model, {"x": tmp_path}, settings={"max_rank": 16})
    with pytest.raises(ConfigError, match=r"lora\.root = .* is not a directory"):
        lora_engine(toy_model, {}, settings={"root": str(tmp_path / "none")})


def test_the_base_models_name_is_taken(toy_model, adapters, monkeypatch):
    monkeypatch.chdir(toy_model.parent)
    with pytest.raises(ConfigError, match=r"lora\.adapters\.llama: llama is the base model's name"):
        lora_engine(toy_model.name, {toy_model.name: adapters["a0"]})


def test_more_adapters_than_may_be_loaded_are_all_known(toy_model, adapters):
    _, store = lora_engine(toy_model, adapters, settings={"max_loaded": 3})
    assert (len(store.known), len(store.loaded), store.num_evictions) == (8, 3, 5)
    assert store.pin("a0").id == store.names()["a0"]
    store.check_integrity()


def test_every_projection_but_the_head_gets_one_delta_of_the_known_kind(toy_model, adapters):
    engine, _ = lora_engine(toy_model, adapters)
    projections = engine.runner.model.projections
    assert {name: [type(d) for d in p.deltas] for name, p in projections.items()} == {
        name: [] if name == "lm_head" else [LowRankDelta] for name in projections
    }


def test_a_resolved_model_is_pinned_until_it_is_released(toy_model, adapters):
    plugin = LoraPlugin()
    model = make_engine(toy_model).engine.runner.model
    table = convert("lora", LoraOptions, lora_options({"a1": adapters["a1"]})["lora"])
    plugin.adapt_model(model=model, config=SimpleNamespace(model="toy"), options=table)
    assert plugin.resolve_model("nobody") is None
    resolved = plugin.resolve_model("a1")
    (listed,) = plugin.list_models()
    assert (resolved.name, resolved.parent, resolved.adapter) == (listed.name, listed.parent, listed.adapter)
    assert resolved.adapter.startswith("a1@")
    assert (plugin.store.usage(), listed.release) == ({"a1": 1}, None)
    resolved.release()
    resolved.release()
    assert plugin.store.usage() == {"a1": 0}


def batch_of(*rows: tuple[str, int]) -> Any:
    offsets = [sum(length for _, length in rows[:i]) for i in range(len(rows))]
    return SimpleNamespace(
        spans=[SimpleNamespace(adapter=adapter) for adapter, _ in rows],
        query_lens=[length for _, length in rows],
        row_offsets=offsets,
    )


def test_a_plan_has_every_row_once_and_merges_neighbours():
    loaded = {"a@1": SimpleNamespace(packed="A", rank=4), "b@1": SimpleNamespace(packed="B", rank=8)}
    rows = [("", 3), ("", 2), ("a@1", 1), ("a@1", 5), ("b@1", 1), ("a@1", 2), ("", 4)]
    assert SegmentPlanner(loaded.get, 8).plan(batch_of(*rows)) == LoraPlan(
        (Segment(0, 5, None), Segment(5, 11, "A"), Segment(11, 12, "B"), Segment(12, 14, "A"), Segment(14, 18, None)),
        rank=8,
    )


def test_a_batch_of_the_base_has_no_plan():
    assert SegmentPlanner({}.get, 8).plan(batch_of(("", 3), ("", 2))) is None


def test_an_adapter_that_is_not_loaded_is_an_error():
    with pytest.raises(RuntimeError, match="adapter 'c@1' is not loaded"):
        SegmentPlanner({}.get, 8).plan(batch_of(("", 3), ("c@1", 2)))


@pytest.mark.parametrize(
    "other", ["ngram", "hybrid_attn", "draft.chain", "draft.tree", "attention.hybrid", "kernel.cpu"]
)
def test_it_is_explained_with_what_it_meets(other, capsys):
    assert main(["plugins", "explain", "lora", other]) == 0
    assert capsys.readouterr().out


def test_it_starts_beside_the_others(capsys):
    assert main(["plugins", "check", "lora", "ngram", "hybrid_attn"]) == 0
