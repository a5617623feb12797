"""What people pass for a model and is none: each is named for what it is, with what to do."""

from __future__ import annotations

import json
import pickle
import sys
from importlib.metadata import EntryPoints
from pathlib import Path
from types import ModuleType

import pytest
import torch
from naive_forward import load
from safetensors.torch import load_file, save_file

from specserve.config import EngineConfig
from specserve.engine.before_loading import check_before_loading
from specserve.errors import ModelError
from specserve.models import made_directories
from specserve.models.hub_errors import hub_message
from specserve.models.locate import locate_model, locate_target
from specserve.models.read_config import read_config
from specserve_workbench.testing.toy import write_checkpoint

DOCS = (Path(__file__).parents[2] / "docs/models.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _the_engine_alone(monkeypatch):
    """No plugin makes directories of files of other formats."""
    monkeypatch.setattr(made_directories, "entry_points", lambda group: EntryPoints())


def refused(name):
    with pytest.raises(ModelError) as error:
        locate_target(str(name))
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("m.gguf", b"GGUF\3\0\0\0", "a GGUF file, the format of llama.cpp, which the plugin gguf reads"),
        ("model", b"GGUF\3\0\0\0", "a GGUF file"),
        ("m.llamafile", b"\x7fELF", "a GGUF file"),
        ("pytorch_model.bin", b"PK\3\4...", "a file of pickled weights"),
        ("m.pt", pickle.dumps(1), "a file of pickled weights"),
        ("model", pickle.dumps(1), "a file of pickled weights"),
        ("consolidated.00.pth", b"PK\3\4", "a file of pickled weights"),
        ("m.onnx", b"\x08\7", "an ONNX graph"),
        ("tf_model.h5", b"\x89HDF", "a file of TensorFlow or Keras"),
        ("flax_model.msgpack", b"\x80", "a file of TensorFlow or Keras"),
        ("m.tflite", b"", "compiled for another runtime"),
        ("m.engine", b"", "compiled for another runtime"),
        ("m.tar.gz", b"\x1f\x8b", "an archive. Unpack it"),
        ("m.zip", b"PK\3\4", "an archive. Unpack it"),
        ("train.parquet", b"PAR1", "a file of data"),
        ("train.jsonl", b"{}", "a file of data"),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        ("modeling.py", b"import torch", "code and not a model"),
        ("README.md", b"# A model", "a text file"),
        ("something", b"", "a file and not a model"),
    ],
)
def test_a_file_is_named_for_what_it_is(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    message = refused(tmp_path / name)
    assert f"{name}' is " in message
    assert told in message


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_file_of_a_model_leads_to_its_directory(tmp_path, name):
    write_checkpoint(tmp_path)
    assert f"Pass the directory that holds it, with its config.json: {tmp_path}." in refused(tmp_path / name)


def test_weights_without_a_config_and_adapters_weights_are_told_apart(tmp_path):
    save_file({"model.norm.weight": torch.ones(2)}, tmp_path / "w.safetensors")
    save_file({"base_model.model.x.lora_A.weight": torch.ones(2)}, tmp_path / "a.safetensors")
    assert "has no config.json" in refused(tmp_path / "w.safetensors")
    assert "--plugin lora" in refused(tmp_path / "a.safetensors")


@pytest.mark.parametrize("name", ["demo-eagle3", "demo-eagle", "demo-mtp", "demo-dspark"])
def test_a_draft_head_says_that_it_is_one_and_how_it_is_served(name):
    message = refused(name)
    assert f"model '{name}' is a draft head" in message
    assert f"Run: specserve serve demo --plugin eagle --set eagle.model={name}." in message


def test_a_head_by_its_path_is_told_beside_any_target(tmp_path):
    message = refused(locate_model("demo-eagle3"))
    assert "specserve serve TARGET --plugin eagle" in message
    assert "where TARGET is the model that it was trained for" in message


@pytest.mark.parametrize("named", [
    {"architectures": ["Gemma4AssistantForCausalLM"]},
    {"architectures": [], "model_type": "gemma4_unified_assistant"},
], ids=str)  # fmt: skip
def test_an_assistant_says_that_it_drafts_and_how_it_is_served(tmp_path, named):
    write_files(tmp_path, text_config={"model_type": "gemma4_text"}, **named)
    message = refused(tmp_path)
    assert "is an assistant, a draft model that reads the keys and values of another model, and is no model" in message
    assert f"Run: specserve serve TARGET --plugin eagle --set eagle.model={tmp_path}, where TARGET is" in message
    with pytest.raises(ModelError, match="is an assistant, a draft model"):
        read_config(tmp_path)


def test_a_stand_alone_draft_model_is_a_model():
    assert locate_target("demo-standalone") == locate_model("demo-standalone")


def test_a_whole_model_with_a_head_in_its_file_is_a_model(tmp_path):
    path = write_checkpoint(tmp_path)
    save_file({"model.norm.weight": torch.ones(2), "mtp.fc.weight": torch.ones(2)}, path / "model.safetensors")
    assert locate_target(str(path)) == path


def write_files(path, *names, **config):
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("{}")
    if config:
        (path / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ((), "an empty directory"),
        (("m-Q4_K_M.gguf", "README.md"), "m-Q4_K_M.gguf is a GGUF file"),
        (("model.onnx",), "model.onnx is an ONNX graph"),
        (("tf_model.h5",), "tf_model.h5 is a file of TensorFlow"),
        (("params.json", "consolidated.00.pth", "tokenizer.model"), "in the layout of its authors"),
        (("model_index.json", "unet/config.json"), "a diffusers pipeline"),
        (("dataset_info.json", "train.arrow"), "a directory of data"),
        (("train.parquet",), "a file of data"),
        (("pytorch_model.bin",), "a file of pickled weights"),
        (("model.safetensors", "tokenizer.json"), "Copy config.json"),
        (("refs/main", "snapshots/abc/config.json"), "snapshots/abc"),
        (
            ("checkpoint-500/config.json", "checkpoint-900/config.json"),
            "Pass one of them: checkpoint-500, checkpoint-900",
        ),
        (("adapter_model.safetensors", "adapter_config.json"), "a LoRA adapter"),
    ],
)
def test_a_directory_without_a_config_is_named_by_its_files(tmp_path, files, told):
    write_files(tmp_path, *files)
    assert told in refused(tmp_path)


def test_an_adapter_names_its_base_model_and_how_it_is_served(tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "org/m"}))
    assert f"specserve serve org/m --plugin lora --set lora.adapters.NAME={tmp_path}" in refused(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "PREFIX_TUNING"}))
    assert "an adapter of kind PREFIX_TUNING, which is not served" in refused(tmp_path)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"architectures": ["BertModel"]}, "an encoder or embedding model"),
        ({"architectures": ["Qwen3Model"], "model_type": "qwen3"}, "an encoder or embedding model"),
        ({"architectures": ["CLIPModel"], "text_config": {}, "vision_config": {}}, "an encoder or embedding model"),
        ({"architectures": ["BertForMaskedLM"]}, "an encoder that fills in"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "a classifier or reward model"),
        ({"architectures": ["ViTForImageClassification"]}, "an image model"),
        ({"architectures": ["Wav2Vec2ForCTC"]}, "a speech model"),
        ({"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}, "an encoder and a decoder"),
        ({"architectures": ["Qwen2VLForConditionalGeneration"], "vision_config": {}}, "also reads images or sound"),
        ({"architectures": ["Eagle3LlamaForCausalLM"]}, "a draft head"),
        ({"architectures": ["DFlashDraftModel"]}, "a draft head"),
        ({"architectures": ["LlamaForCausalLM"], "speculators_model_type": "eagle"}, "a draft head"),
    ],
)
def test_a_model_of_another_kind_is_named_by_its_class(tmp_path, config, told):
    write_files(tmp_path, **config)
    assert told in refused(tmp_path)
    with pytest.raises(ModelError, match=told):
        read_config(tmp_path)


def test_an_embedding_model_of_a_served_architecture_is_told_by_its_files(tmp_path):
    write_files(write_checkpoint(tmp_path), "config_sentence_transformers.json")
    assert "an embedding model" in refused(tmp_path)


@pytest.mark.parametrize("architecture", ["GPT2LMHeadModel", "GemmaForCausalLM"])
def test_other_text_models_are_told_the_supported_ones(tmp_path, architecture):
    write_files(tmp_path, architectures=[architecture])
    with pytest.raises(ModelError, match=f"'{architecture}' is not supported. Supported: LlamaForCausalLM"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("https://huggingface.co/org/name", "Pass org/name"),
        ("huggingface.co/org/name/", "Pass org/name"),
        ("hf.co/org/name", "Pass org/name"),
        ("hf://org/name", "Pass org/name"),
        ("https://huggingface.co/org/name/tree/main", "Pass org/name"),
        ("https://huggingface.co/org/name/tree/v2", "hf download org/name --revision v2"),
        ("https://huggingface.co/org/name/blob/main/m-Q4.gguf", "a GGUF file"),
        ("https://huggingface.co/datasets/org/name", "one of the hub's datasets"),
        ("https://huggingface.co/org", "names no model"),
        ("https://example.com/m.safetensors", "an address of example.com. Download it"),
        ("s3://bucket/model", "addresses of s3:// are not read. Download it"),
        ("file:///models/m", "Pass the path alone: /models/m"),
        ("org/name@v2", "hf download org/name --revision v2"),
        ("org/name-GGUF:Q4_K_M", "Pass org/name-GGUF if it has *.safetensors"),
        ("llama3:8b", "tags such as :8b are names of GGUF files"),
    ],
)
def test_names_of_other_programs_are_told_what_to_pass(name, told):
    message = refused(name)
    assert f"model '{name}' is not served: " in message
    assert told in message


@pytest.mark.parametrize("name", ["models/m.gguf", "models/model.safetensors"])
def test_a_path_to_no_file_is_not_taken_for_a_hub_id(name):
    assert "there is no such directory" in refused(name)


class Response:
    def __init__(self, status_code):
        self.status_code = status_code


def error_of(kind, message="first line.\nsecond", status=None):
    error = type(kind, (OSError,), {})(message)
    if status is not None:
        error.response = Response(status)
    return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            error_of("GatedRepoError", status=403),
            "access on request .* https://huggingface.co/org/name, .*hf auth login",
        ),
        (error_of("RepositoryNotFoundError", status=401), "no such model, or it is private .* Check the spelling"),
        (error_of("LocalEntryNotFoundError"), "not downloaded before and the hub cannot be reached"),
        (error_of("HfHubHTTPError", status=401), "asks who you are .* HF_TOKEN"),
        (error_of("HfHubHTTPError", status=429), "too many requests .* Wait"),
        (error_of("HfHubHTTPError", status=503), "answered with status 503 .* Try again later"),
        (error_of("ConnectTimeout"), r"cannot be reached .*HTTPS_PROXY"),
        (OSError(28, "No space left on device"), "the disk is full .* HF_HOME"),
        (PermissionError(13, "Permission denied"), "may not be written .* HF_HOME"),
    ],
)
def test_each_error_of_the_hub_says_why_and_what_to_do(error, told):
    message = hub_message("org/name", error)
    assert "second" not in message
    with pytest.raises(
        ModelError, match=f"model 'org/name' is not a directory here and cannot be downloaded: .*{told}"
    ):
        raise ModelError(message)


def test_the_hubs_own_errors_are_known_by_name():
    errors = pytest.importorskip("huggingface_hub.errors")
    for name in ("GatedRepoError", "RepositoryNotFoundError", "LocalEntryNotFoundError", "OfflineModeIsEnabled"):
        assert isinstance(getattr(errors, name), type)


def test_a_model_of_the_hub_in_another_format_says_so(tmp_path, monkeypatch):
    hub = ModuleType("huggingface_hub")
    hub.snapshot_download = lambda name, allow_patterns: tmp_path / "nowhere"
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert "of the hub has no config.json. It holds another format, such as GGUF" in refused("org/name-GGUF")


def test_the_documented_recipe_turns_pickled_weights_into_a_served_model(tmp_path, monkeypatch):
    source = write_checkpoint(tmp_path / "DIR")
    weights = load_file(source / "model.safetensors")
    torch.save(weights, source / "pytorch_model.bin")
    (source / "model.safetensors").unlink()
    recipe = DOCS.partition("Pickled weights, in")[2].partition("```\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    with torch.inference_mode(mode=False):
        exec(recipe, {})  # the page's own words
    model = load(locate_target("OUT"))
    assert torch.equal(model.embedding, weights["model.embed_tokens.weight"])


def test_a_draft_head_is_refused_before_anything_is_loaded():
    with pytest.raises(ModelError, match="'demo-eagle3' is a draft head"):
        check_before_loading(EngineConfig(model="demo-eagle3"))
