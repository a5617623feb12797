"""The directory that stands for a file: made once, by any number of processes, anew for a file that has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conversion import convert

from specserve.api import ModelError
from specserve.models.locate import locate_model
from specserve_gguf import model_directory as module
from specserve_gguf.source import Gguf
from specserve_workbench.testing.toy import write_checkpoint


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "specserve" / "gguf"


@pytest.fixture
def file(tmp_path):
    return convert(write_checkpoint(tmp_path / "model"), tmp_path / "model.gguf")


def test_it_has_what_a_model_has_and_a_link_to_the_file(cache, file):
    made = locate_model(str(file))
    assert made.parent == cache
    assert {each.name for each in made.iterdir()} >= {"config.json", "tokenizer.json", "model.gguf"}
    assert (made / "model.gguf").readlink() == file


def test_it_is_made_once_and_anew_where_the_file_has_changed(cache, file, monkeypatch):
    first = locate_model(str(file))
    with monkeypatch.context() as patched:
        patched.setattr(module, "contents_of", None)
        assert locate_model(str(file)) == first
    os.utime(file, ns=(1, 1))
    assert locate_model(str(file)) != first


def test_sixteen_at_once_make_one_directory(cache, file):
    with ThreadPoolExecutor(16) as pool:
        assert len({*pool.map(module.model_directory, [file] * 16)}) == 1
    assert [each.name for each in cache.iterdir()] == [locate_model(str(file)).name]


def test_where_nothing_can_be_written_it_lasts_as_long_as_the_process(tmp_path, file):
    """A home that is a file, as for a service without one."""
    (tmp_path / "home").write_text("")
    code = (
        "import sys; from specserve.models.locate import locate_model; made = locate_model(sys.argv[1]); "
        "assert made == locate_model(sys.argv[1]); assert (made / 'config.json').exists(); "
        "assert 'torch' not in sys.modules; print(made)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(file)], env=environment, capture_output=True, text=True, check=True
    )
    made = done.stdout.strip()
    assert "specserve-gguf-" in made
    assert not os.path.exists(made)


def refused(*arguments):
    raise PermissionError(13, "Permission denied")


def unknown(*arguments):
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize("home", [unknown, refused], ids=["no home", "another user's home"])
def test_a_user_whose_home_is_of_no_use_has_one_for_as_long_as_the_process_lasts(monkeypatch, file, home):
    """As in a container that runs with any user's number."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(module.Path, "home", home)
    made = module.model_directory(file)
    assert made.parent.name.startswith("specserve-gguf-")
    assert module.model_directory(file) == made


def test_a_directory_with_one_model_is_that_model_and_with_several_it_is_refused(cache, tmp_path, file):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mmproj-model.gguf").write_bytes(b"")
    one = folder / "one.gguf"
    one.symlink_to(file)
    assert (locate_model(str(folder)) / "one.gguf").exists()
    (folder / "two.gguf").symlink_to(file)
    with pytest.raises(ModelError, match=r"must have the GGUF files of one model; got one\.gguf, two\.gguf"):
        locate_model(str(folder))


def test_its_config_can_be_corrected_in_a_copy(cache, tmp_path, file):
    made, copy = locate_model(str(file)), tmp_path / "copy"
    copy.mkdir()
    for each in made.iterdir():
        (copy / each.name).symlink_to(each)
    config = json.loads((made / "config.json").read_text()) | {"rope_parameters": {"rope_theta": 5000.0}}
    (copy / "config.json").unlink()
    (copy / "config.json").write_text(json.dumps(config))
    assert locate_model(str(copy)) == copy


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("llama.block_count", 513, "key llama.block_count must be at most 512; got 513"),
        ("llama.block_count", 0, "key llama.block_count must be a whole number, at least 1"),
        ("llama.embedding_length", 1 << 31, "key llama.embedding_length must be a whole number"),
        ("llama.attention.head_count", 0, "key llama.attention.head_count must be"),
        ("llama.attention.value_length", 64, "attention.value_length must be as attention.key_length, 32; got 64"),
        ("llama.context_length", 0, "key llama.context_length must be"),
    ],
)
def test_a_number_that_no_model_has_is_refused_by_its_key(cache, file, key, value, words):
    content = bytearray(file.read_bytes())
    at = content.index(key.encode()) + len(key) + 4
    content[at : at + 4] = value.to_bytes(4, "little")
    file.write_bytes(content)
    with pytest.raises(ModelError, match=words):
        locate_model(str(file))
    assert not cache.exists() or not [*cache.iterdir()]


@pytest.mark.parametrize("name", ["clip5", "mamba"])
def test_another_architecture_is_refused_by_name(cache, file, name):
    content = file.read_bytes().replace(b"\5\0\0\0\0\0\0\0llama", len(name).to_bytes(8, "little") + name.encode(), 1)
    file.write_bytes(content)
    with pytest.raises(ModelError, match=f"architecture '{name}' is not read from GGUF files; those that are: llama,"):
        locate_model(str(file))


def test_any_change_of_some_bytes_of_a_models_header_gives_a_model_or_an_error(cache, tmp_path, file):
    """From header to tensors' names; most changes hit the vocabulary, and half are made elsewhere on purpose."""
    right, rng = bytearray(file.read_bytes()), np.random.default_rng(1)
    vocabulary, behind = right.index(b"tokenizer.ggml.tokens"), right.index(b"tokenizer.ggml.eos_token_id")
    end = right.index(b"output_norm.weight") + 50
    outside = [*range(24, vocabulary), *range(behind, end)]
    wrong = tmp_path / "wrong.gguf"
    messages = []
    for round_ in range(400):
        content = right.copy()
        for _ in range(rng.integers(1, 4)):
            place = rng.choice(outside) if round_ % 2 else rng.integers(24, end)
            content[place] = rng.integers(0, 256)
        wrong.write_bytes(content)
        try:
            Gguf().open(locate_model(str(wrong)))
        except ModelError as error:
            messages.append(str(error))
    assert 100 < len(messages) < 400
    assert not [message for message in messages if "which fails" in message]  # any other exception
