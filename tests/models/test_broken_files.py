"""A weights file that cannot be opened is named with what is wrong with it, and its sizes."""

from __future__ import annotations

import pickle
import zipfile

import pytest
from naive_forward import load

from specserve.errors import ModelError
from specserve.models.safetensors_header import SINGLE
from specserve_workbench.testing.toy import write_checkpoint

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 988097824\n"


def broken(path, change):
    """The file of a toy's weights, changed, and what the engine says of it."""
    file = write_checkpoint(path) / SINGLE
    content = file.read_bytes()
    file.write_bytes(change(content))
    with pytest.raises(ModelError) as error:
        load(path)
    assert str(file) in str(error.value)
    return len(content), str(error.value)


def test_a_file_that_is_cut_off_is_told_with_both_sizes(tmp_path):
    size, message = broken(tmp_path, lambda content: content[:-1])
    assert f"is truncated: it has {size - 1} of {size} bytes, 1 are missing. Download" in message


def test_a_file_cut_within_its_header_is_told_with_the_headers_size(tmp_path):
    _, message = broken(tmp_path, lambda content: content[:500])
    assert "is truncated: it has 500 bytes, and its header alone" in message


@pytest.mark.parametrize(
    ("length", "told"), [(0, "it is empty (0 bytes)"), (5, "it has 5 bytes, less than any header")]
)
def test_a_file_of_no_bytes_or_few_says_so(tmp_path, length, told):
    assert told in broken(tmp_path, lambda content: content[:length])[1]


def test_a_file_with_more_than_its_header_tells_says_so(tmp_path):
    size, message = broken(tmp_path, lambda content: content + b"1234567")
    assert f"has 7 bytes behind the {size} that its header tells of" in message


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (POINTER, "is a Git LFS pointer.*`git lfs pull`"),
        (b"<!DOCTYPE html><html>Log in</html>", "is a web page.*hf download"),
        (b"GGUF\x03\0\0\0" + bytes(100), "is a GGUF file"),
        (pickle.dumps({"a": 1}), "is a file of pickled weights"),
        (bytes(100), "is not a safetensors file"),
        (b"\x10\0\0\0\0\0\0\0{no json at all}", "is not a safetensors file"),
    ],
)
def test_another_file_by_that_name_is_named_for_what_it_is(tmp_path, content, told):
    path = write_checkpoint(tmp_path)
    (path / SINGLE).write_bytes(content)
    with pytest.raises(ModelError, match=rf"model\.safetensors {told}"):
        load(path)


def test_a_torch_archive_by_that_name_is_a_pickle(tmp_path):
    path = write_checkpoint(tmp_path)
    with zipfile.ZipFile(path / SINGLE, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
    with pytest.raises(ModelError, match="pickled weights"):
        load(path)
