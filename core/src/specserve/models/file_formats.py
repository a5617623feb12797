"""What a file is that is no safetensors model, told by its first bytes or its name, and what can be done with it.

Owns the formats that people have models in; knows nothing about directories or about how a model is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.models.safetensors_header import header_length

if TYPE_CHECKING:
    from pathlib import Path

RECIPES = "docs/models.md, 'Other formats', has the commands"
ORIGINAL = "Use the model's own files in Hugging Face format: config.json, *.safetensors and tokenizer.json"


class FileFormat(NamedTuple):
    """`what` follows "is"; `advice` is a sentence without its full stop."""

    what: str
    advice: str


GGUF = FileFormat(
    "a GGUF file, the format of llama.cpp, which the plugin gguf reads from files that end with .gguf",
    f"Run pip install specserve-plugin-gguf. {ORIGINAL}, or convert the file: {RECIPES}",
)
PICKLE = FileFormat(
    "a file of pickled weights: loading a pickle runs code from it, so it is refused",
    f"Use a revision of the model that has *.safetensors, or convert the weights: {RECIPES}",
)
ONNX = FileFormat("an ONNX graph, which is not served and cannot be turned back into weights", ORIGINAL)
KERAS = FileFormat("a file of TensorFlow or Keras, which is not served", f"{ORIGINAL}, or convert it: {RECIPES}")
COMPILED = FileFormat("a model compiled for another runtime, which cannot be turned back into weights", ORIGINAL)
ARCHIVE = FileFormat("an archive", "Unpack it and pass the directory that has config.json")
DATASET = FileFormat("a file of data and not a model", "Pass the directory of a model")
GIT_LFS = FileFormat(
    "a Git LFS pointer and not the file itself: the repository was cloned without git-lfs",
    "Run `git lfs pull` in its directory, or download the model with `hf download`",
)
WEB_PAGE = FileFormat(
    "a web page and not the file itself: its address was downloaded, or a log-in was asked for",
    "Download it again, with `hf download` for a model of the hub",
)
TEXT = FileFormat("a text file and not a model", "Pass the directory of a model")
CODE = FileFormat("code and not a model: specserve runs none of a model's own code", ORIGINAL)

MAGIC = (
    (b"GGUF", GGUF),
    (b"lmgg", GGUF),
    (b"tjgg", GGUF),
    (b"version https://git-lfs", GIT_LFS),
    (b"<!DOCTYPE", WEB_PAGE),
    (b"<!doctype", WEB_PAGE),
    (b"<html", WEB_PAGE),
    (b"\x89HDF", KERAS),
    (b"PAR1", DATASET),
    (b"\x80\x02", PICKLE),
    (b"\x80\x03", PICKLE),
    (b"\x80\x04", PICKLE),
    (b"\x80\x05", PICKLE),
    (b"\x1f\x8b", ARCHIVE),
    (b"BZh", ARCHIVE),
    (b"\xfd7zXZ", ARCHIVE),
    (b"\x28\xb5\x2f\xfd", ARCHIVE),
)
SUFFIXES = {
    GGUF: (".gguf", ".ggml", ".llamafile"),
    PICKLE: (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"),
    ONNX: (".onnx", ".onnx_data", ".ort"),
    KERAS: (".h5", ".keras", ".msgpack", ".pb"),
    COMPILED: (".engine", ".plan", ".tflite", ".pte", ".mlmodel", ".mlpackage", ".task", ".litertlm", ".nemo"),
    ARCHIVE: (".zip", ".tar", ".tgz", ".gz", ".xz", ".bz2", ".zst", ".7z"),
    DATASET: (".parquet", ".arrow", ".jsonl", ".csv", ".tsv"),
    CODE: (".py", ".ipynb", ".sh"),
    TEXT: (".txt", ".md", ".yaml", ".yml", ".toml"),
}
FORMATS = {suffix: kind for kind, suffixes in SUFFIXES.items() for suffix in suffixes}
ZIP = b"PK\x03\x04"
"""torch writes its pickles in such archives."""
LONGEST_MAGIC = 32


def format_of(file: Path) -> FileFormat | None:
    """By its content, then by its name; None where neither is known. Raises OSError."""
    named = FORMATS.get(file.suffix.lower())
    if not file.is_file() or header_length(file) is not None:  # the length may look like another format's first bytes
        return named
    with file.open("rb") as opened:
        start = opened.read(LONGEST_MAGIC)
    if start.startswith(ZIP):
        return named if named in (ARCHIVE, KERAS, COMPILED) else PICKLE
    return next((kind for magic, kind in MAGIC if start.startswith(magic)), named)
