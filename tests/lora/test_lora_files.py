"""Which files of an adapter are opened, and what its version is made of."""

from __future__ import annotations

import os
from typing import Any

import pytest
from adapter_reading import reader_for, refusal

from specserve.confine import OutsideRootError
from specserve_lora.adapter_dir import confined_dir, unconfined_dir
from toy_adapters import write_adapter


def test_a_pickle_is_never_read(toy_model, tmp_path):
    write_adapter(tmp_path, toy_model)
    (tmp_path / "adapter_model.safetensors").rename(tmp_path / "adapter_model.bin")
    assert "is a pickle, which runs code of whoever wrote it and is never read" in refusal(toy_model, tmp_path)


def test_what_is_no_regular_file_is_not_opened(toy_model, tmp_path):
    write_adapter(tmp_path, toy_model)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).unlink()
        assert f"there is no file {tmp_path}/{name}" in refusal(toy_model, tmp_path)
        os.mkfifo(tmp_path / name)
        assert f"{name} is not a regular file" in refusal(toy_model, tmp_path)
        (tmp_path / name).unlink()
        (tmp_path / name).mkdir()
        assert f"{name} is not a regular file" in refusal(toy_model, tmp_path)
        (tmp_path / name).rmdir()
        write_adapter(tmp_path, toy_model)


def test_a_link_inside_an_adapter_does_not_lead_out_of_the_root(toy_model, tmp_path):
    (tmp_path / "root").mkdir()
    inside, outside = (write_adapter(tmp_path / p, toy_model) for p in ("root/a", "outside"))
    (inside / "adapter_config.json").unlink()
    (inside / "adapter_config.json").symlink_to(outside / "adapter_config.json")
    root = (tmp_path / "root").resolve()
    with pytest.raises(OutsideRootError, match=r"is not inside lora\.root"):
        reader_for(toy_model).read(confined_dir("a", root))
    assert reader_for(toy_model).read(unconfined_dir(str(inside)))


def test_an_adapter_larger_than_all_memory_is_refused_before_it_is_read(toy_model, tmp_path, monkeypatch):
    write_adapter(tmp_path, toy_model)
    monkeypatch.setattr("specserve_lora.safetensors_file.SafetensorsFile.read", None)
    assert "and lora.max_memory allows 1000 for all adapters" in refusal(toy_model, tmp_path, max_bytes=1000)


def test_the_version_follows_both_files_and_nothing_else(toy_model, tmp_path):
    def version(path: str, **config: Any) -> str:
        write_adapter(tmp_path / path, toy_model, **config)
        return reader_for(toy_model).read(unconfined_dir(str(tmp_path / path))).version

    first = version("a")
    assert version("b") == first
    assert len({first, version("c", seed=1), version("d", lora_alpha=8), version("a", seed=2)}) == 4
