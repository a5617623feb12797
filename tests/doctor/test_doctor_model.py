"""Models that are complete, damaged, missing, or too large for the machine."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from found import by_check, statuses
from safetensors.torch import load_file, save_file

from specserve.models import locate
from specserve_server.config import ServerConfig
from specserve_workbench.doctor import model_directory, model_memory
from specserve_workbench.doctor.model_directory import directory_rows
from specserve_workbench.doctor.model_memory import model_memory_rows
from specserve_workbench.testing.toy import write_checkpoint


@pytest.fixture
def model(toy_model, tmp_path):
    return shutil.copytree(toy_model, tmp_path / "model")


def rewrite(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def rows_of_model(make_case, model, **config):
    case = make_case(model=str(model), **config)
    return by_check([*directory_rows(case), *model_memory_rows(case)])


def test_a_complete_model_is_fine(make_case, model):
    rows = rows_of_model(make_case, model, kv_memory="8M")
    assert statuses(rows.values()) == {
        "directory": "ok",
        "config": "ok",
        "tokenizer": "ok",
        "chat template": "ok",
        "weights": "ok",
        "weights fit": "ok",
        "kv cache": "ok",
    }
    assert "F32" in rows["weights"].found
    assert rows["kv cache"].figures["bytes"] <= 8 * 2**20


def test_the_cache_is_what_the_engine_makes(make_case, model):
    from specserve_workbench.testing.engines import make_engine

    for options in ({"kv_memory": "3M"}, {"kv_memory": "3M", "default_plugins": True}, {"max_num_seqs": 2}):
        built = make_engine(model, **({"kv_memory": None} | options)).engine.parts.limits.cache_tokens
        row = rows_of_model(make_case, model, **({"default_plugins": False, "max_num_seqs": 8} | options))["kv cache"]
        assert row.figures["tokens"] == built, options


def test_a_model_without_a_chat_template_is_noted(make_case, model):
    config = json.loads((model / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    assert statuses(rows_of_model(make_case, model, kv_memory="8M").values())["chat template"] == "note"


def test_a_chat_template_of_its_own_is_read_in_place_of_the_models(make_case, model, tmp_path):
    (model / "chat_template.jinja").write_text("{% for")
    file = tmp_path / "mine.jinja"
    file.write_text("{{ messages }}")
    rows = rows_of_model(make_case, model, kv_memory="8M", server=ServerConfig(chat_template=str(file)))
    assert statuses([rows["tokenizer"], rows["chat template"]]) == {"tokenizer": "ok", "chat template": "ok"}


DAMAGE = {
    "no config": (lambda path: (path / "config.json").unlink(), "config", "has no config.json"),
    "config that is no JSON": (lambda path: (path / "config.json").write_text("{"), "config", "not readable JSON"),
    "another architecture": (
        lambda path: rewrite(path / "config.json", architectures=["GPT2LMHeadModel"]),
        "config",
        "is not supported",
    ),
    "no tokenizer": (lambda path: (path / "tokenizer.json").unlink(), "tokenizer", "has no tokenizer.json"),
    "a damaged tokenizer": (lambda path: (path / "tokenizer.json").write_text("{}"), "tokenizer", "not a valid"),
    "a broken chat template": (
        lambda path: (path / "chat_template.jinja").write_text("{% for"),
        "tokenizer",
        "chat template is not valid",
    ),
    "no weights": (lambda path: (path / "model.safetensors").unlink(), "weights", "has no weights"),
    "cut weights": (
        lambda path: (path / "model.safetensors").write_bytes((path / "model.safetensors").read_bytes()[:-99]),
        "weights",
        "truncated",
    ),
    "weights of another model": (
        lambda path: rewrite(path / "config.json", num_hidden_layers=3),
        "weights",
        "is missing",
    ),
    "weights of other sizes": (
        lambda path: rewrite(path / "config.json", intermediate_size=48),
        "weights",
        "has shape",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_fails_where_it_is_and_is_explained(make_case, model, kind):
    damage, check, said = DAMAGE[kind]
    damage(model)
    rows = rows_of_model(make_case, model, kv_memory="8M", default_plugins=False)
    assert said in rows[check].found
    assert next(name for name, row in rows.items() if row.status == "failed") == check


@pytest.mark.parametrize("prefix", ["", "model.language_model."], ids=["text", "text part"])
def test_tensors_that_loading_leaves_out_are_no_damage(make_case, tmp_path, prefix):
    """Keys that layers do not read, and what reads images."""
    sharing = {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3, "num_kv_shared_layers": 1}
    model = write_checkpoint(tmp_path / "model", architecture="gemma4_text", **sharing)
    file, config = model / "model.safetensors", json.loads((model / "config.json").read_text())
    tensors = load_file(file) | {"model.layers.2.self_attn.k_proj.weight": torch.ones(64, 128)}
    if prefix:
        tensors = {name.replace("model.", prefix, 1): tensor for name, tensor in tensors.items()}
        tensors["model.vision_tower.norm.weight"] = torch.ones(8)
        config = {"architectures": ["Gemma4ForConditionalGeneration"], "text_config": config}
        (model / "config.json").write_text(json.dumps(config))
    save_file(tensors, file, metadata={"format": "pt"})
    weights = rows_of_model(make_case, model)["weights"]
    assert weights.status == "ok", weights


def test_a_model_of_a_library_is_left_to_it(make_case, model):
    rewrite(model / "config.json", architectures=["GPTNeoXForCausalLM"])
    rows = rows_of_model(make_case, model, plugins=("transformers",))
    assert (rows["config"].status, rows["tokenizer"].status) == ("note", "ok")
    assert "the library transformers computes this model" in rows["config"].found


def test_a_missing_shard_fails(make_case, tmp_path):
    model = write_checkpoint(tmp_path / "sharded", shards=2)
    sorted(model.glob("*.safetensors"))[1].unlink()
    rows = rows_of_model(make_case, model)
    assert (rows["weights"].status, "shard" in rows["weights"].found) == ("failed", True)


def test_a_model_that_is_nowhere_fails_once(make_case, tmp_path):
    rows = rows_of_model(make_case, tmp_path / "nothing")
    assert rows.pop("directory").status == "failed"
    assert {row.status for row in rows.values()} == {"note"}


def test_a_hub_id_is_never_downloaded(make_case, monkeypatch):
    def refuse(name):
        pytest.fail("it would be downloaded")

    monkeypatch.setattr(locate, "_download", refuse)
    monkeypatch.setattr("specserve_workbench.doctor.case.locate_downloaded", lambda name: None)
    rows = rows_of_model(make_case, "some-org/some-model")
    assert rows.pop("directory").status == "warning"
    assert {row.status for row in rows.values()} == {"note"}


def test_a_downloaded_hub_id_is_checked(make_case, monkeypatch, model):
    monkeypatch.setattr("specserve_workbench.doctor.case.locate_downloaded", lambda name: model)
    assert statuses(rows_of_model(make_case, "some-org/some-model", kv_memory="8M").values())["weights"] == "ok"


def test_a_hub_id_that_was_not_downloaded_is_not_on_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert locate.locate_downloaded("some-org/some-model") is None


def test_a_missing_demo_model_is_no_failure(make_case, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for module in (locate, model_directory):
        monkeypatch.setattr(module, "entry_points", lambda group: type("None_", (), {"names": set()}))
    rows = rows_of_model(make_case, "demo")
    assert (rows["directory"].status, "specserve-demo" in rows["directory"].advice) == ("warning", True)
    assert rows_of_model(make_case, "other")["directory"].status == "failed"


def test_a_context_that_the_model_does_not_have_fails(make_case, model):
    row = rows_of_model(make_case, model, max_model_len=10**6)["config"]
    assert (row.status, "max_model_len" in row.found) == ("failed", True)


def test_weights_and_cache_are_held_against_free_memory(make_case, model, monkeypatch):
    monkeypatch.setattr(model_memory, "free_memory", lambda device: 1000)
    rows = rows_of_model(make_case, model)
    assert (rows["weights fit"].status, rows["kv cache"].status) == ("failed", "failed")
    assert "at least two blocks" in rows["kv cache"].found
    monkeypatch.setattr(model_memory, "free_memory", lambda device: 2**25)
    rows = rows_of_model(make_case, model, kv_memory="1G")
    assert (rows["weights fit"].status, rows["kv cache"].status) == ("ok", "failed")
    rows = rows_of_model(make_case, model, kv_memory="32K", block_size=16)
    assert rows["kv cache"].status == "warning"


def test_a_text_that_nothing_ends_is_a_warning(make_case, model):
    (model / "generation_config.json").unlink()
    rewrite(model / "config.json", eos_token_id=None)
    tokenizer = model / "tokenizer_config.json"
    if tokenizer.exists():
        rewrite(tokenizer, eos_token=None)
    assert statuses(rows_of_model(make_case, model, kv_memory="8M").values())["end of text"] == "warning"
