"""Files of other formats that an installed package makes directories of: by their path, and from the hub."""

from __future__ import annotations

import fnmatch
import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType

import pytest

from specserve.errors import ModelError
from specserve.models import made_directories
from specserve.models.locate import locate_downloaded, locate_model, locate_on_disk

WHERE = "tests_of_made_directories"


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """A package that reads files that end with .toy; what it was asked for."""
    package, paths = ModuleType(WHERE), []

    def made(path):
        paths.append(path)
        if path.name == "broken.toy":
            raise KeyError("what it needs")
        if path.name == "wrong.toy":
            raise ModelError("wrong.toy is wrong.")
        return path.parent / "made"

    package.made = made
    monkeypatch.setitem(sys.modules, WHERE, package)
    installed = EntryPoints([EntryPoint("toy", f"{WHERE}:made", made_directories.GROUP)])
    monkeypatch.setattr(made_directories, "entry_points", lambda group: installed)
    return paths


def test_a_file_becomes_the_directory_that_the_package_makes(tmp_path, asked):
    file = tmp_path / "m.toy"
    file.write_bytes(b"")
    assert locate_model(str(file)) == tmp_path / "made"
    assert asked == [file]


def test_a_directory_of_such_files_does_too_unless_it_has_a_config(tmp_path, asked):
    (tmp_path / "m.toy").write_bytes(b"")
    assert locate_on_disk(str(tmp_path)) == tmp_path.parent / "made"
    (tmp_path / "config.json").write_text("{}")
    assert locate_on_disk(str(tmp_path)) == tmp_path
    assert asked == [tmp_path]


def test_what_is_installed_is_not_read_for_a_directory_with_a_config(tmp_path, monkeypatch):
    """Reading it takes longer than all else that starts a small model."""
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(made_directories, "entry_points", lambda group: pytest.fail("it is read"))
    assert locate_on_disk(str(tmp_path)) == tmp_path


def test_its_own_errors_pass_and_others_name_it(tmp_path):
    for name, words in (("wrong.toy", "^wrong.toy is wrong.$"), ("broken.toy", f"{WHERE}:made, which fails: KeyError")):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(ModelError, match=words):
            locate_model(str(tmp_path / name))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A repository with these files; the patterns that were asked for."""
    patterns, package = [], ModuleType("huggingface_hub")
    names = ("m-Q4_K_M.toy", "m-Q4_K_S.toy", "m-q8_0-00001-of-00002.toy", "m-q8_0-00002-of-00002.toy", "README.md")

    def snapshot_download(name, *, allow_patterns, local_files_only=False):
        assert name == "org/name-GGUF"
        patterns.extend(allow_patterns)
        for file in names:
            if any(fnmatch.fnmatchcase(file, pattern) for pattern in allow_patterns):
                (tmp_path / file).write_bytes(b"")
        return str(tmp_path)

    package.snapshot_download = snapshot_download
    monkeypatch.setitem(sys.modules, "huggingface_hub", package)
    return patterns


def test_a_tag_downloads_the_files_that_it_names_alone(tmp_path, asked, hub):
    assert locate_on_disk("org/name-GGUF:Q4_K_M") is None
    assert locate_model("org/name-GGUF:Q4_K_M") == tmp_path / "made"
    assert asked == [tmp_path / "m-Q4_K_M.toy"]
    assert hub == ["*Q4_K_M*.toy", "*q4_k_m*.toy"]


def test_shards_are_one_model_and_case_does_not_matter(tmp_path, asked, hub):
    assert locate_downloaded("org/name-GGUF:Q8_0") == tmp_path / "made"
    assert asked == [tmp_path / "m-q8_0-00001-of-00002.toy"]


@pytest.mark.parametrize(("tag", "got"), [("Q4", "m-Q4_K_M, m-Q4_K_S"), ("Q2_K", "none")])
def test_a_tag_that_names_several_models_or_none_is_refused(hub, tag, got):
    with pytest.raises(ModelError, match=f"must name the files of one model; got {got}"):
        locate_model(f"org/name-GGUF:{tag}")
