"""Files of a tokenizer that are damaged or wrong: the error names the file, the place and what to do."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest
from tiny_tokenizer import write_model_dir

from specserve.config import EngineConfig
from specserve.engine.make_tokenizer import make_tokenizer
from specserve.errors import ConfigError, RequestError
from specserve.text.tokenizer import HfTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def cut(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:30])


def rewritten(name: str, **fields: Any) -> Callable[[Path], object]:
    return lambda path: (path / name).write_text(json.dumps({**json.loads((path / name).read_text()), **fields}))


def precompiled(charsmap: bytes) -> dict[str, str]:
    return {"type": "Precompiled", "precompiled_charsmap": b64encode(charsmap).decode()}


def trie(units: int) -> bytes:
    """A map that changes no character, and has no entry for bytes from `units` on."""
    return struct.pack("<I", 4 * units) + bytes(4 * units) + b"x\0"


WRONG = {
    "cut": (cut("tokenizer.json"), r"tokenizer\.json is not readable JSON: .*line 3.* Download the file again"),
    "no object": (lambda path: (path / "tokenizer.json").write_text("[]"), r"tokenizer\.json must hold a JSON object"),
    "of another library": (
        rewritten("tokenizer.json", model={"type": "Magic"}),
        r"tokenizer\.json is not a valid tokenizer: the library tokenizers [\d.]+ reads no such file .*update",
    ),
    **{
        name: (rewritten("tokenizer.json", **part), rf"tokenizer\.json is not a valid tokenizer: .*panicked: {said}")
        for name, part, said in (
            ("panics when it is read", {"normalizer": precompiled(b"")}, "Precompiled"),
            ("panics at every text", {"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "chunk size"),
            ("panics at some characters", {"normalizer": precompiled(trie(200))}, "index out of bounds"),
        )
    },
    "settings": (cut("tokenizer_config.json"), r"tokenizer_config\.json is not readable JSON"),
    "temperature": (rewritten("generation_config.json", temperature=-3), "generation_config.json: temperature.*got -3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_file_the_place_and_what_to_do_are_told(tmp_path: Path, name: str) -> None:
    damage, said = WRONG[name]
    write_model_dir(tmp_path)
    damage(tmp_path)
    with pytest.raises(ConfigError, match=said):
        make_tokenizer(EngineConfig(model=str(tmp_path)), tmp_path)


def test_sampling_defaults_that_are_not_used_may_be_wrong(tmp_path: Path) -> None:
    write_model_dir(tmp_path)
    rewritten("generation_config.json", temperature=-3)(tmp_path)
    config = EngineConfig(model=str(tmp_path), generation_config="none")
    assert isinstance(make_tokenizer(config, tmp_path), HfTokenizer)


def test_a_text_at_which_the_library_panics_ends_its_request_alone(tmp_path: Path) -> None:
    """Texts of any length; characters from U+100000 on begin with a byte that the map does not have."""
    write_model_dir(tmp_path)
    rewritten("tokenizer.json", normalizer=precompiled(trie(0xF2)))(tmp_path)
    tokenizer = HfTokenizer.from_dir(tmp_path)
    for text in ("a \U00100000", "a" * 5000 + "\U00100000"):
        with pytest.raises(RequestError, match="cannot encode this text: the library tokenizers panicked: index out"):
            tokenizer.encode(text)
        with pytest.raises(RequestError, match="cannot encode this text"):
            tokenizer.encode_in_background(text)
    assert tokenizer.decode(tokenizer.encode("a b")) == "a b"
