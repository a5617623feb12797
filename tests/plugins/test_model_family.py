"""docs/plugins/model_family.md: its families, installed as the page shows them, compute what transformers does."""

from __future__ import annotations

import importlib
import json
import math

import msgspec
import pytest
import torch
from doc_examples import check_page_types, install_page
from transformers import AutoModelForCausalLM

from specserve.config import EngineConfig
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import ModelError, PluginError
from specserve.hookspecs import hookimpl
from specserve.models.family import ModelFamily
from specserve.models.read_config import parse_config
from specserve.types import SamplingParams
from specserve_eagle.training.target import Target
from specserve_workbench.doctor.case import Case
from specserve_workbench.doctor.model_directory import config as rows_of_config
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import drafter_plugin, make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests
from specserve_workbench.testing.toy import DEFAULTS, write_checkpoint

PAGE = "model_family.md"
FAMILIES = {"exaone4": ("families.exaone4", "Exaone4"), "helium": ("families.helium", "Helium")}
CHANGES = {
    "exaone4": [{}, {"sliding_window": 24, "tie_word_embeddings": True, "num_key_value_heads": 4}],
    "helium": [{}, {"attention_bias": True, "mlp_bias": True}],
}
CASES = [(family, changes) for family, cases in CHANGES.items() for changes in cases]


@pytest.fixture
def installed(site, monkeypatch):
    files = install_page(site, PAGE)
    for name in ("families", "families.plugin", "families.exaone4", "families.helium", "families.compat"):
        monkeypatch.delitem(importlib.sys.modules, name, raising=False)
    return files


@pytest.fixture
def checkpoint(installed, tmp_path):
    def write(family, **changes):
        module, name = FAMILIES[family]
        made = getattr(importlib.import_module(module), name)()
        return write_checkpoint(tmp_path / f"{family}{len(changes)}", architecture=made, **changes)

    return write


def their_logprobs(path, tokens):
    """[T, V]"""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([tokens])).logits[0].float(), -1)


@pytest.mark.parametrize(("family", "changes"), CASES, ids=str)
def test_tokens_and_log_probabilities_are_those_of_transformers(checkpoint, family, changes):
    path = checkpoint(family, **changes)
    prompt = [*range(5, 45)]
    params = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True, logprobs=1, prompt_logprobs=0)
    request = msgspec.structs.replace(toy_request("a", prompt), params=params)
    engine = make_engine(path, dtype="float32", default_plugins=True, no_plugins=("cpu",)).engine
    output = run_requests(engine, [request]).outputs["a"]
    theirs = their_logprobs(path, [*prompt, *output.tokens])
    for step, (token, given) in enumerate(zip(output.tokens, output.logprobs, strict=True)):
        row = theirs[len(prompt) - 1 + step]
        assert token == int(row.argmax())
        assert given.logprob == pytest.approx(float(row[token]), abs=2e-4)
    scored = [each for each in output.prompt_logprobs if each is not None]
    expected = [float(theirs[i, token]) for i, token in enumerate(prompt[1:])]
    assert [each.logprob for each in scored] == pytest.approx(expected, abs=2e-4)
    assert math.isfinite(sum(expected))


@pytest.mark.parametrize("key", ["rms_norm_eps", "rope_theta", "hidden_act", "tie_word_embeddings"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_key_that_is_absent_means_what_it_does_in_transformers(checkpoint, family, key):
    path = checkpoint(family, rms_norm_eps=1e-1)
    config = json.loads((path / "config.json").read_text())
    del config[key]
    (path / "config.json").write_text(json.dumps(config))
    prompt = [*range(5, 45)]
    request = toy_request("a", prompt, max_tokens=1, prompt_logprobs=0)
    output = run_requests(make_engine(path, plugins=("families",)).engine, [request]).outputs["a"]
    theirs = their_logprobs(path, prompt)
    expected = [float(theirs[i, token]) for i, token in enumerate(prompt[1:])]
    assert [each.logprob for each in output.prompt_logprobs if each is not None] == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("default_plugins", [False, True], ids=["torch", "native"])
@pytest.mark.parametrize("family", FAMILIES)
def test_drafts_chunks_and_neighbours_change_nothing(checkpoint, beside_ours, family, default_plugins):
    path, requests = checkpoint(family), varied_requests(16)
    given = {"plugins": ("families",), "default_plugins": default_plugins}
    given |= {"no_plugins": ("adaptive",)} if default_plugins else {}  # how much it drafts depends on the machine
    plain = run_requests(make_engine(path, **given, max_num_seqs=1, prefix_cache=False).engine, requests)
    noisy = NoisyDrafter(plain.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
    given |= {"extra": {"drafter": drafter_plugin(lambda: noisy)}, "max_num_batched_tokens": 24}
    made = make_engine(path, **given)
    assert ("cpu" in made.description["kernels"]) == default_plugins
    drafted = run_requests(made.engine, requests)
    assert drafted.decided() == plain.decided()
    assert drafted.metrics.num_accepted_tokens > 20


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_are_trained_for_a_family_of_a_plugin(checkpoint, beside_ours, family):
    """Training reads it as transformers computes it."""
    path, prompt = checkpoint(family), [*range(5, 45)]
    read = Target.load(path, "cpu").features(torch.tensor([prompt]), ()).logits[0].float().log_softmax(-1)
    torch.testing.assert_close(read, their_logprobs(path, prompt), atol=2e-4, rtol=1e-4)


def test_a_family_without_its_plugin_is_refused_by_name(checkpoint):
    path = checkpoint("helium")
    with pytest.raises(ModelError, match=r"'HeliumForCausalLM' is not supported\. Supported: LlamaForCausalLM, "):
        make_engine(path)


def served_by(model, **members):
    """An engine on a Llama's files that say they are of a plugin's family with these members."""
    family = type("Mine", (ModelFamily,), {"name": "mine", "architectures": ("MineForCausalLM",), **members})

    class Plugin:
        @hookimpl
        def model_families(self):
            return [family()]

    extra = {"mine": InProcessPlugin(Plugin(), PluginDeclaration(name="mine", provides={"model.family": "a test's"}))}
    return make_engine(model, extra=extra)


def test_two_plugins_for_one_architecture_are_refused(toy_model):
    with pytest.raises(PluginError, match="Mine among its model_families for LlamaForCausalLM, which the engine"):
        served_by(toy_model, architectures=("LlamaForCausalLM",))


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("rms_norm_eps", 0.1, "norm_eps"),
        ("torch_dtype", "bfloat16", "dtype"),
        ("num_key_value_heads", 1, "num_kv_heads"),
        ("tie_word_embeddings", True, "tied"),
    ],
)
def test_what_a_family_says_of_an_absent_key_holds_for_every_key(key, value, field):
    mine = type("Mine", (ModelFamily,), {"name": "mine", "architectures": ("MineForCausalLM",), "absent": {key: value}})
    raw = {**DEFAULTS, "architectures": ["MineForCausalLM"]}
    raw.pop(key, None)
    assert getattr(parse_config(raw, {}, where="config.json", families=(mine(),)), field) == value


def test_an_activation_that_is_absent_is_the_familys():
    mine = type("Mine", (ModelFamily,), {"name": "mine", "architectures": ("M",), "absent": {"hidden_act": "gelu"}})
    raw = {key: value for key, value in DEFAULTS.items() if key != "hidden_act"} | {"architectures": ["M"]}
    with pytest.raises(ModelError, match="hidden_act must be silu; got 'gelu'"):
        parse_config(raw, {}, where="config.json", families=(mine(),))


def raising(*_):
    raise KeyError("no_such_key")


@pytest.mark.parametrize("rubbish", [lambda *_: 3, lambda *_: ["many"], raising], ids=["number", "list", "raises"])
@pytest.mark.parametrize(
    "method",
    [
        *("renamed", "traits", "sliding_windows", "layer_attention", "inner_sizes", "mixers", "main_rotation"),
        *("rotations", "check", "stored_as", "left_out", "decoder"),
    ],
)
def test_a_family_that_fails_is_named_with_its_plugin(tmp_path, method, rubbish):
    class Mine(ModelFamily):
        name = "mine"
        architectures = ("MineForCausalLM",)

    model = write_checkpoint(tmp_path / "model", architecture=Mine())
    assert served_by(model).engine
    with pytest.raises(
        PluginError, match=rf"mine: its family mine .*when it was asked for (its )?{method}\. See specserve"
    ):
        served_by(model, **{method: staticmethod(rubbish) if method == "decoder" else rubbish})


@pytest.mark.parametrize("members", [{"name": 3}, {"architectures": "MineForCausalLM"}], ids=str)
def test_names_that_are_none_are_refused(toy_model, members):
    with pytest.raises(PluginError, match=r"mine: its family's (name|architectures) must be a"):
        served_by(toy_model, **members)


@pytest.mark.parametrize("family", FAMILIES)
def test_doctor_knows_the_family(checkpoint, family):
    case = Case(EngineConfig(model=str(checkpoint(family))), None)
    (row,) = rows_of_config(case)
    assert (row.status, row.found.startswith(f"{family}, 2 layers")) == ("ok", True)
    assert case.weights().stored == case.weights().served > 10**6


def test_the_page_is_well_typed(tmp_path):
    check_page_types(PAGE, tmp_path)
