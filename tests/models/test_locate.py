"""A model's name leads to its directory, or to an error that says where it was looked for."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from specserve.errors import ModelError
from specserve.models.locate import locate_model

PACKAGE = """
from pathlib import Path
HERE = Path(__file__).parent
AS_PATH = HERE / "weights"
def as_function(): return HERE / "weights"
def missing(): return HERE / "nowhere"
def broken(): raise RuntimeError("no weights in this wheel")
"""
ENTRIES = "".join(f"{name} = toy_models:{attr}\n" for name, attr in [
    ("toy-path", "AS_PATH"), ("toy-function", "as_function"), ("toy-missing", "missing"),
    ("toy-broken", "broken"), ("toy-absent", "nothing"),
])  # fmt: skip


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution that offers models, installed for the time of one test."""
    info = tmp_path / "toy_models-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-models\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[specserve.models]\n{ENTRIES}")
    (tmp_path / "toy_models.py").write_text(PACKAGE)
    (tmp_path / "weights").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("toy_models", None)


def fake_hub(monkeypatch, download):
    hub = ModuleType("huggingface_hub")
    hub.snapshot_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)


def test_a_directory_is_itself(tmp_path):
    assert locate_model(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["toy-path", "toy-function"])
def test_an_installed_package_may_offer_a_name(installed, name):
    assert locate_model(name) == installed / "weights"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("toy-missing", "nowhere does not exist"),
        ("toy-broken", "RuntimeError: no weights in this wheel"),
        ("toy-absent", "AttributeError"),
    ],
)
def test_an_offer_that_fails_names_who_offered_it(installed, name, message):
    with pytest.raises(ModelError, match=rf"(?s)'{name}' is offered by toy_models:.*{message}.*Reinstall"):
        locate_model(name)


def test_an_unknown_name_is_answered_with_the_known_ones(installed):
    with pytest.raises(ModelError, match=r"no model 'nonsense'.*known: .*toy-function.*toy-path"):
        locate_model("nonsense")


@pytest.mark.parametrize("name", ["/no/such/directory", "./x/y", "a/b/c", "../up"])
def test_a_path_is_never_taken_for_a_hub_id(monkeypatch, name):
    fake_hub(monkeypatch, lambda *args, **options: pytest.fail("asked the hub"))
    with pytest.raises(ModelError, match="there is no such directory"):
        locate_model(name)


def test_a_hub_id_is_downloaded_without_pickles_or_code(tmp_path, monkeypatch):
    asked = []
    (tmp_path / "config.json").write_text("{}")
    fake_hub(monkeypatch, lambda name, allow_patterns: (asked.append((name, allow_patterns)), tmp_path)[1])
    assert locate_model("some-org/some.model-1B") == tmp_path
    assert asked == [("some-org/some.model-1B", ["*.json", "*.safetensors", "*.jinja"])]


def test_a_hub_id_without_the_hub_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match=r"pip install 'specserve\[hub\]'"):
        locate_model("org/name")


def test_a_hub_id_without_network_says_so(monkeypatch):
    def offline(name, allow_patterns):
        raise OSError("Name or service not known\nand a long trace")

    fake_hub(monkeypatch, offline)
    said = r"cannot be downloaded: the hub cannot be reached \(OSError: Name or service not known\)\. Check the network"
    with pytest.raises(ModelError, match=said):
        locate_model("org/name")
