"""A plugin's format of weights that fails, or answers something else: start-up says whose fault that is."""

from __future__ import annotations

import json

import pytest
import torch

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import ModelError, PluginError
from specserve.hookspecs import hookimpl
from specserve.models.formats.safetensors import Safetensors
from specserve.models.weight_format import ALL_ROWS, QuantMethod, WeightFiles, WeightSource
from specserve.protocols import QuantisedWeight
from specserve_workbench.testing.engines import make_engine


class Plain(WeightSource):
    """The tensors of a file of safetensors, by another class."""

    def __init__(self, path):
        self.path, self.inner = path, Safetensors().open(path)
        self.tensors = self.inner.tensors

    def read(self, name, rows=ALL_ROWS):
        return self.inner.read(name, rows)


class Mine(WeightFiles):
    name = "mine"
    patterns = ("*.mine",)

    def __init__(self, source, **members):
        self.source, self.members = source, members

    def open(self, path):
        plain = Plain(self.source)
        for name, member in self.members.items():
            setattr(plain, name, member)
        return plain


class MineToo(QuantMethod):
    name = "mine"

    def open(self, stored, settings, where):
        return stored


def served_by(toy_model, tmp_path, made):
    """An engine on a toy's files, which a plugin's format reads."""
    path = tmp_path / "model"
    path.mkdir()
    for file in toy_model.iterdir():
        if file.suffix != ".safetensors" or isinstance(made, QuantMethod):
            (path / file.name).write_bytes(file.read_bytes())
    (path / "weights.mine").touch()
    if isinstance(made, QuantMethod):
        config = json.loads((path / "config.json").read_text()) | {"quantization_config": {"quant_method": made.name}}
        (path / "config.json").write_text(json.dumps(config))

    class Plugin:
        @hookimpl
        def weight_formats(self):
            return [made]

    extra = {"mine": InProcessPlugin(Plugin(), PluginDeclaration(name="mine", provides={"model.weights": "a test's"}))}
    return make_engine(path, extra=extra)


def raising(*_):
    raise KeyError("no_such_key")


def test_a_format_of_a_plugin_in_process_is_read(toy_model, tmp_path):
    for made in (Mine(toy_model), MineToo()):
        (tmp_path / type(made).__name__).mkdir()
        assert served_by(toy_model, tmp_path / type(made).__name__, made).engine


@pytest.mark.parametrize("rubbish", [lambda *_: 3, lambda *_: [1], raising], ids=["number", "list", "raises"])
@pytest.mark.parametrize("base", [Mine, MineToo], ids=["files", "method"])
def test_a_format_that_fails_to_open_is_named_with_its_plugin(toy_model, tmp_path, base, rubbish):
    made = base(toy_model) if base is Mine else base()
    made.open = rubbish
    with pytest.raises(
        PluginError, match=rf"mine: its format mine .*asked for its tensors. See .*{base.__base__.__name__}"
    ):
        served_by(toy_model, tmp_path, made)


@pytest.mark.parametrize(
    "read",
    [raising, lambda *_: 3, lambda *_: torch.zeros(3), lambda *_: QuantisedWeight(torch.zeros(3), None, 1, None)],
    ids=["raises", "number", "shape", "quantised"],
)
def test_a_tensor_that_is_not_what_its_header_says_is_named_with_its_plugin(toy_model, tmp_path, read):
    with pytest.raises(
        PluginError, match=r"mine: its format mine .*asked for tensor model\.embed_tokens\.weight of shape"
    ):
        served_by(toy_model, tmp_path, Mine(toy_model, read=read))


@pytest.mark.parametrize("tensors", [None, [], {"model.norm.weight": (128,)}], ids=str)
def test_tensors_that_are_none_are_refused(toy_model, tmp_path, tensors):
    with pytest.raises(PluginError, match=r"mine: its format mine answered Plain.*asked for its tensors"):
        served_by(toy_model, tmp_path, Mine(toy_model, tensors=tensors))


def test_a_tensor_of_another_type_is_refused_by_name(toy_model, tmp_path):
    tensors = {name: each._replace(dtype="Q9") for name, each in Safetensors().open(toy_model).tensors.items()}
    with pytest.raises(
        ModelError, match=r"tensor model\.embed_tokens\.weight has type Q9; allowed: F64, F32, BF16, F16"
    ):
        served_by(toy_model, tmp_path, Mine(toy_model, tensors=tensors))


def test_a_file_that_cannot_be_read_is_named(toy_model, tmp_path):
    def read(*_):
        raise OSError("the disk is gone")

    with pytest.raises(ModelError, match=r"model\.safetensors: tensor .* cannot be read: the disk is gone\. Download"):
        served_by(toy_model, tmp_path, Mine(toy_model, read=read))


@pytest.mark.parametrize("members", [{"name": 3}, {"name": "safetensors"}, {"patterns": "*.mine"}], ids=str)
def test_members_that_are_none_are_refused(toy_model, tmp_path, members):
    made = Mine(toy_model)
    vars(made).update(members)
    with pytest.raises(
        PluginError, match=r"mine(: its format's (name|patterns) must be a| has a Mine among its weight_)"
    ):
        served_by(toy_model, tmp_path, made)
