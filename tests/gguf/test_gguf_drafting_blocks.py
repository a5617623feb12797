"""Files with the block that drafts (MTP) as a further layer: the target leaves it out, and the plugin eagle drafts with
it as with that of the model that was converted."""

from __future__ import annotations

import conversion
import nextn_blocks
import pytest
import torch
from eagle_engines import Recorder, eagle_engine
from qwen35_blocks import with_stacked_experts, write_target
from safetensors.torch import load_file

from mtp_blocks import shapes_of
from specserve.api import ModelError
from specserve.models.checkpoint import Checkpoint
from specserve.models.locate import locate_model
from specserve.models.quantised import dense
from specserve.models.read_config import read_config
from specserve_gguf.source import Gguf
from specserve_workbench.testing.engines import accepted, run, run_requests
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy import DEFAULTS, write_checkpoint

REQUESTS = [toy_request(f"{i}", tuple(range(3 + i, 120, 9)), max_tokens=24, ignore_eos=True) for i in range(2)]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def target(tmp_path):
    return write_target(tmp_path / "model")


@pytest.fixture
def file(tmp_path, target):
    return conversion.convert(target, tmp_path / "model.gguf")


def served(model, **options):
    """Tokens, and all drafts by request and length."""
    recorder = Recorder(verifies=True)
    outcome = run_requests(eagle_engine(model, model, planner=recorder, dtype="float32", **options), REQUESTS)
    assert not outcome.metrics.drafter_faults
    return outcome.tokens(), recorder.drafts


def test_the_block_has_the_tensors_that_it_had(target, file):
    original, checkpoint = load_file(target / "model.safetensors"), Checkpoint(Gguf().open(locate_model(str(file))))
    assert {name for name in checkpoint.names if name.startswith("mtp.")} == shapes_of(DEFAULTS).keys()
    for name in shapes_of(DEFAULTS):
        added = 1.0 if "norm" in name else 0.0  # what is multiplied: less one, it was rounded
        assert torch.equal(dense(checkpoint.take(name)) + added, original[name] + added), name


def test_the_target_has_the_other_layers_alone(target, file, caplog):
    made = locate_model(str(file))
    assert read_config(made).num_layers == read_config(target).num_layers == 4
    wanted = run(target, REQUESTS, dtype="float32").tokens()
    assert run(str(file), REQUESTS, plugins=("gguf",), dtype="float32").tokens() == wanted
    assert "not used" not in caplog.text


@pytest.mark.usefixtures("each_kernel_set")
def test_drafts_are_those_of_the_model_that_was_converted(target, file):
    tokens, drafts = served(target)
    assert len(drafts) > 24
    assert served(str(file), beside=("gguf",)) == (tokens, drafts)


@pytest.mark.usefixtures("each_kernel_set")
def test_a_block_of_glm_is_a_further_layer_that_drafts_as_in_the_model_that_was_converted(tmp_path):
    target = nextn_blocks.write_target(tmp_path / "model", "glm4_moe", first_k_dense_replace=1)
    file = conversion.convert(target, tmp_path / "model.gguf")
    assert read_config(locate_model(str(file))).num_layers == nextn_blocks.LAYERS
    tokens, drafts = served(target)
    assert len(drafts) > 24
    assert served(str(file), beside=("gguf",)) == (tokens, drafts)


def test_a_block_with_experts_drafts_as_that_of_the_model_that_was_converted(tmp_path):
    target = with_stacked_experts(write_target(tmp_path / "model", architecture="qwen3_5_moe_text"))
    file = conversion.convert(target, tmp_path / "model.gguf")
    tokens, drafts = served(target)
    assert len(drafts) > 24
    assert served(str(file), beside=("gguf",)) == (tokens, drafts)


def test_a_block_of_8_bits_drafts_and_changes_no_token(tmp_path):
    target = write_target(tmp_path / "model", linear_value_head_dim=32)
    file = str(conversion.convert(target, tmp_path / "model.gguf", "Q8_0"))
    tokens, drafts = served(file, beside=("gguf",))
    assert tokens == run(file, REQUESTS, plugins=("gguf",), dtype="float32").tokens()
    assert drafts


def test_a_stand_alone_draft_model_may_be_a_file(tmp_path):
    target = write_checkpoint(tmp_path / "model")
    file = str(conversion.convert(target, tmp_path / "model.gguf"))
    outcome = run_requests(eagle_engine(target, file, dtype="float32"), REQUESTS)
    assert outcome.tokens() == run(target, REQUESTS, dtype="float32").tokens()
    good, drafted = accepted(outcome)
    assert good == drafted > 0


def test_a_tensor_of_the_block_that_is_not_read_is_refused_by_name(tmp_path, target):
    file = conversion.convert(target, tmp_path / "model.gguf", factors={"blk.4.nextn.embed_tokens": [1.0]})
    with pytest.raises(ModelError, match=r"tensor mtp\.layers\.0\.nextn\.embed_tokens\.weight is not part of the mtp"):
        eagle_engine(str(file), str(file), beside=("gguf",))
