"""help() and inspect.signature know every public class and function, whatever their annotations name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import pydoc
from typing import get_type_hints, is_typeddict

import msgspec
import pytest

from specserve import protocols
from specserve.models.family import ModelFamily
from specserve.models.weight_format import QuantMethod, WeightFiles, WeightSource
from specserve.plugins.interface_checks import public_name

PACKAGES = ("specserve", "specserve_cpu", "specserve_lora", "specserve_ngram")


def public_objects(package):
    """The classes and functions that its public modules define, by their full names."""
    found = {}
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if "._" in info.name:
            continue  # native code states no signatures
        module = importlib.import_module(info.name)
        for name, thing in vars(module).items():
            own = getattr(thing, "__module__", None) == info.name and not name.startswith("_")
            if own and (inspect.isclass(thing) or inspect.isroutine(thing)):
                found[f"{info.name}.{name}"] = thing
    return found


@pytest.fixture(scope="module", params=PACKAGES)
def objects(request):
    return public_objects(request.param)


INTERFACES = (
    protocols.Drafter, protocols.DraftPlanner, protocols.KernelSet, protocols.Sampler, protocols.LogitsProcessor,
    protocols.ProcessorState, protocols.LoraPlanner, protocols.DrafterNeeds, protocols.Metric, ModelFamily, WeightFiles,
    QuantMethod, WeightSource,
)  # fmt: skip
"""What errors of start-up tell authors to extend, and to return."""


@pytest.mark.parametrize("kind", INTERFACES, ids=lambda kind: kind.__name__)
def test_errors_name_an_interface_as_plugins_import_it(kind):
    assert public_name(kind).startswith("specserve.api.")
    assert pkgutil.resolve_name(public_name(kind)) is kind


def test_the_walk_reaches_the_core():
    found = public_objects("specserve")
    assert len(found) > 400
    for name in (
        "batch.batch.Batch",
        "batch.span.Span",
        "declare.Compatible",
        "engine.engine.Engine",
        "sampling.scores.scores",
    ):
        assert f"specserve.{name}" in found


def test_help_describes_every_public_object(objects):
    for name, thing in objects.items():
        assert name.rpartition(".")[2] in pydoc.render_doc(thing, renderer=pydoc.plaintext)


def without_a_signature(thing):
    """Python itself states none of bare exceptions, nor, before 3.13, of typed dictionaries."""
    bare = inspect.isclass(thing) and issubclass(thing, Exception) and "__init__" not in vars(thing)
    return bare or is_typeddict(thing)


def test_every_public_object_has_a_signature_where_python_states_one(objects):
    for name, thing in objects.items():
        if without_a_signature(thing):
            continue
        assert inspect.signature(thing) is not None, name


def test_the_annotations_of_structs_can_be_evaluated(objects):
    """msgspec does so; elsewhere names that only annotations use are imported for type checkers alone."""
    structs = [thing for thing in objects.values() if inspect.isclass(thing) and issubclass(thing, msgspec.Struct)]
    for struct in structs:
        assert {*struct.__struct_fields__} <= {*get_type_hints(struct)}
