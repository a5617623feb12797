"""What uno's start refuses, in words that say what to do; and what options and files say of the drafts."""

from __future__ import annotations

import json
import logging

import pytest
from uno_engines import Witness, uno_engine

from draft_adapters import BLOCK, UNO_CONFIG, write_draft_adapter
from drafted_requests import mixed_requests
from specserve.errors import ConfigError
from specserve_lora.uno.options import UnoOptions, directory_of
from specserve_server.cli import main
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import write_adapter


def test_without_an_adapter_the_error_says_which_option_before_the_model_is_loaded(tmp_path):
    with pytest.raises(ConfigError, match=r"uno\.adapter is not set: .* --set uno\.adapter=PATH"):
        make_engine(tmp_path / "no model either", plugins=("uno",))


def test_a_path_without_an_adapter_is_told_before_the_model_is_loaded(tmp_path):
    for path, what in (
        (tmp_path / "nowhere", "there is no directory"),
        (tmp_path, "there is no file .*adapter_config"),
    ):
        with pytest.raises(ConfigError, match=rf"uno\.adapter = .*: {what}"):
            uno_engine(tmp_path / "no model either", path)


def test_an_adapter_is_found_by_the_name_that_a_package_offers():
    with directory_of("demo-uno").open("adapter_config.json") as file:
        assert b"uno_config" in file.read()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("demo-unno", r"uno\.adapter = 'demo-unno': there is no directory 'demo-unno'.* No installed package offers"),
        ("demo-eagle3", r"uno\.adapter = 'demo-eagle3': there is no file .*adapter_config\.json(?!.*offers)"),
        ("./demo-uno", r"uno\.adapter = '\./demo-uno': there is no directory"),
    ],
)
def test_a_name_that_is_no_adapter_is_told_as_it_was_given(name, said):
    with pytest.raises(ConfigError, match=said):
        UnoOptions(adapter=name)


STATED = {
    "no object": ([3], r"uno_config: .*object.*got"),
    "one is missing": ({"block_size": 4}, r"uno_config: .*mask_token_id"),
    "the other is missing": ({"mask_token_id": 40}, r"uno_config: .*block_size"),
    "a word": ({"mask_token_id": "many", "block_size": 4}, r"uno_config: mask_token_id: .*got"),
    "too wide": ({"mask_token_id": 40, "block_size": 65}, r"uno_config: block_size: .*64.*got 65"),
    "beyond the vocabulary": (
        {"mask_token_id": TOY_VOCAB + 1, "block_size": 4},
        rf"uno_config: mask_token_id must be at most {TOY_VOCAB}, the tokens of the model; got {TOY_VOCAB + 1}",
    ),
}


@pytest.mark.parametrize(("stated", "said"), STATED.values(), ids=STATED)
def test_a_config_that_is_wrong_is_refused_by_file_and_field(uno_target, tmp_path, stated, said):
    adapter = write_draft_adapter(tmp_path / "adapter", uno_target, uno_config=stated)
    with pytest.raises(ConfigError, match=r"adapter_config\.json: " + said):
        uno_engine(uno_target, adapter)


def test_an_adapter_for_another_model_is_refused(uno_target, draft_adapter, tmp_path):
    other = write_checkpoint(tmp_path / "other", hidden_size=32)
    with pytest.raises(ConfigError, match=r"uno\.adapter: .*adapter_model\.safetensors: tensor .* has shape"):
        uno_engine(other, draft_adapter)


def test_a_rank_that_no_kernel_serves_is_refused(uno_target, tmp_path):
    adapter = write_adapter(tmp_path / "wide", uno_target, rank=257, targets=["q_proj"])
    with pytest.raises(ConfigError, match=r"q_proj has rank 257, and uno serves at most 256"):
        uno_engine(uno_target, adapter)


@pytest.mark.parametrize(("settings", "said"), [
    ({"draft_tokens": 0}, r"uno\.draft_tokens: .* from 1 to 64 \(the value is 0\)"),
    ({"draft_tokens": 65}, r"uno\.draft_tokens: .* from 1 to 64 \(the value is 65\)"),
    ({"mask_token_id": 1}, r"uno\.mask_token_id: .* at least 2 \(the value is 1\)"),
    ({"mask_token_id": 10**6}, rf"uno\.mask_token_id must be at most {TOY_VOCAB}"),
])  # fmt: skip
def test_an_option_out_of_its_range_is_refused(uno_target, draft_adapter, settings, said):
    with pytest.raises(ConfigError, match=said):
        uno_engine(uno_target, draft_adapter, settings=settings)


def longest(target, adapter, **options):
    witness = Witness()
    run_requests(uno_engine(target, adapter, planner=witness, default_plugins=True, **options), mixed_requests(6))
    return max(map(len, witness.drafts.values()))


def test_the_adapter_and_the_options_say_how_long_drafts_are(uno_target, draft_adapter, tmp_path):
    assert longest(uno_target, draft_adapter) == BLOCK
    assert longest(uno_target, draft_adapter, settings={"draft_tokens": 3}) == 3
    published = write_draft_adapter(tmp_path / "repository" / "adapter", uno_target, uno_config=None)
    assert longest(uno_target, published.parent) == 8, "of a repository with the adapter in a folder"


def test_without_any_draft_tokens_the_drafter_is_asked_in_vain_and_stays(uno_target, draft_adapter):
    """It has no pass of the target then."""
    engine = uno_engine(uno_target, draft_adapter, max_draft_tokens=0)
    assert not run_requests(engine, mixed_requests(6)).metrics.drafter_faults


def test_random_tokens_are_those_that_the_file_or_the_option_bounds(uno_target, draft_adapter, tmp_path):
    silent = write_draft_adapter(tmp_path / "adapter", uno_target, uno_config=None)

    def end(adapter, **settings):
        (guard,) = uno_engine(uno_target, adapter, settings=settings).drafting.guards
        return guard.drafter.config.mask_token_id

    assert end(draft_adapter) == UNO_CONFIG["mask_token_id"]
    assert end(draft_adapter, mask_token_id=40) == 40
    assert end(silent) == TOY_VOCAB


def test_the_field_of_drafts_is_known_to_whoever_serves_the_adapter(uno_target, draft_adapter, caplog):
    with caplog.at_level(logging.WARNING):
        make_engine(uno_target, plugins=("lora",), plugin_options={"lora": {"adapters": {"a": str(draft_adapter)}}})
    assert "not known here" not in caplog.text


@pytest.mark.parametrize(("other", "kind"), [
    ("lora", "compatible"), ("ngram", "compatible"), ("eagle", "compatible"), ("grammar", "compatible"),
    ("kv_events", "compatible"), ("hybrid_attn", "compatible"), ("adaptive", "compatible"),
    ("tensor_parallel", "conflict"),
])  # fmt: skip
def test_explain_knows_every_pair(capsys, other, kind):
    assert main(["plugins", "explain", "uno", other, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == kind
