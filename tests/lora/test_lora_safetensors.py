"""Files that are no safetensors files, or end too early."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

import pytest
from adapter_reading import refusal

from specserve_lora.errors import AdapterError
from specserve_lora.safetensors_file import SafetensorsFile
from toy_adapters import write_adapter


def header(content: Any, data: bytes = b"") -> bytes:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(raw)) + raw + data


ENTRY = {"dtype": "F32", "shape": [4, 128], "data_offsets": [0, 2048]}


@pytest.mark.parametrize("content", [
    b"", b"1234567", b"\xff" * 8, b"\xff" * 64, struct.pack("<Q", 100) + b"{}", header(b"[]"), header(b"{"),
    header(b"\xff\xff"), header({"a": 1}), header({"a": ENTRY}), header({"a": ENTRY}, bytes(2047)),
    header({"a": ENTRY | {"shape": [4, 127]}}, bytes(2048)), header({"a": ENTRY | {"shape": [-4, -128]}}, bytes(2048)),
    header({"a": ENTRY | {"data_offsets": [2048, 0]}}, bytes(2048)),
    header({"a": ENTRY | {"data_offsets": [4, 2052]}}, bytes(2048)),
    header({"a": ENTRY | {"data_offsets": [2**63, 2**63 + 2048]}}, bytes(2048)),
    header({"a": ENTRY | {"shape": [2**62, 2**62]}}, bytes(2048)),
    header(b"[" * 10**5), header({"a": {"dtype": "F32"}}), b"\x80\x02}q\x00." + bytes(100),
    header({"a": ENTRY}, bytes(2049)), header({"a": ENTRY, "b": ENTRY}, bytes(2048)),
], ids=range(22))  # fmt: skip
def test_a_file_that_is_no_safetensors_file_is_refused(toy_model, tmp_path, content):
    write_adapter(tmp_path, toy_model)
    (tmp_path / "adapter_model.safetensors").write_bytes(content)
    assert "is truncated or not a safetensors file" in refusal(toy_model, tmp_path)


@pytest.mark.parametrize("left", [0, 5, 100, 3000, -1])
def test_a_file_that_was_cut_is_refused(toy_model, tmp_path, left):
    file = write_adapter(tmp_path, toy_model) / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:left])
    assert "is truncated or not a safetensors file" in refusal(toy_model, tmp_path)


def test_a_file_that_is_cut_while_it_is_read_is_refused(toy_model, tmp_path):
    path = write_adapter(tmp_path, toy_model) / "adapter_model.safetensors"
    with path.open("rb") as opened:
        file = SafetensorsFile(opened, "here")
        os.truncate(path, path.stat().st_size - 1)
        with pytest.raises(AdapterError, match=r"here is truncated .* ends after"):
            file.read()
