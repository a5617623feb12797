"""Which modules, at which rank and scaling: against PEFT's own functions, on configurations of every kind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from adapter_reading import module
from hypothesis import given, settings
from hypothesis import strategies as st

from specserve_lora.config import AdapterConfig
from specserve_lora.errors import AdapterError
from specserve_lora.modules import Modules
from specserve_lora.patterns import TIMEOUT_SECONDS
from specserve_lora.regex_worker import match_layer
from specserve_lora.targets import is_targeted, target_of, targets_of
from toy_adapters import ALL

PATHS = [
    f"model.layers.{layer}.{'mlp' if 'gate' in part or 'up' in part or 'down' in part else 'self_attn'}.{part}"
    for layer in (0, 1, 11)
    for part in ALL
]
MODULES = {path: module(path, 8, 4) for path in PATHS}
NAMED = Modules(MODULES, {found.key: found for found in MODULES.values()})
NAMES = [*ALL, "1.mlp.up_proj", "layers.0.self_attn.q_proj", PATHS[3], PATHS[12], "proj", "j", "mlp", ""]
PATTERNS = [
    ".*_proj",
    r".*\.1\..*",
    "q_proj",
    r"model\.layers\.\d\.mlp\.(up|down)_proj",
    "^model.*v_proj",
    r"1\..*",
    "x",
]
LAYERS = [None, [], 0, 1, [1, 11], [2]]
LISTS = [None, "", [], "layers", ["h", "layers"], "model.layers", "h"]


def config_of(**fields: Any) -> AdapterConfig:
    return AdapterConfig(**{"peft_type": "LORA", "r": 4, "lora_alpha": 8.0, "target_modules": ["q_proj"]} | fields)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(PATTERNS) | st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
    st.none() | st.sampled_from(PATTERNS) | st.lists(st.sampled_from(NAMES[:-1]), max_size=2),
    st.sampled_from(LAYERS),
    st.sampled_from(LISTS),
)
def test_targets_are_those_that_peft_finds(wanted, excluded, layers, layers_pattern):
    from peft.tuners.tuners_utils import check_target_module_exists

    if isinstance(wanted, str):
        layers = layers_pattern = None  # refused together, by PEFT too
    config = config_of(
        target_modules=wanted, exclude_modules=excluded, layers_to_transform=layers, layers_pattern=layers_pattern
    )
    theirs = SimpleNamespace(**{name: getattr(config, name) for name in config.__struct_fields__})
    theirs.modules_to_save = None
    found = {path: check_target_module_exists(theirs, path) for path in PATHS}
    assert [path for path in PATHS if is_targeted(config, path, match_layer)] == [
        path for path, answer in found.items() if answer and type(answer).__name__ != "_ExcludedModule"
    ]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*PATTERNS, *NAMES[:-1]]), st.integers(1, 64)), max_size=4), st.booleans())
def test_rank_and_alpha_of_a_module_are_those_of_pefts_first_pattern(patterns, rslora):
    from peft.utils.other import get_pattern_key

    table = dict(patterns)
    config = config_of(rank_pattern=table, alpha_pattern={k: float(v + 1) for k, v in table.items()}, use_rslora=rslora)
    for path in PATHS:
        key = get_pattern_key(list(table), path)
        rank, alpha = table.get(key, 4), float(table[key] + 1) if key in table else 8.0
        got = target_of(config, MODULES[path], path, match_layer)
        assert (got.rank, got.scaling) == (rank, alpha / (rank**0.5 if rslora else rank))


@pytest.mark.parametrize(("fields", "said"), [
    ({"target_modules": ["lm_head"]}, "includes lm_head, which is not supported"),
    ({"target_modules": ["q_proj", "embed_tokens"]}, "includes model.embed_tokens, which is not supported"),
    ({"target_modules": ".*"}, "includes lm_head"),
    ({"target_modules": ["c_attn"]}, "matches no linear layer of this model, such as model.layers.11.mlp.down"),
    ({"target_modules": []}, "matches no linear layer"),
    ({"target_modules": "("}, r"'\(' is not a regular expression"),
    ({"rank_pattern": {"[": 3}}, "is not a regular expression"),
], ids=str)  # fmt: skip
def test_what_cannot_be_served_is_named(fields, said):
    with pytest.raises(AdapterError, match=said):
        targets_of(config_of(**fields), NAMED, "here")


def test_all_linear_means_every_layer_and_not_the_head():
    targets = targets_of(config_of(target_modules="ALL-linear"), NAMED, "here")
    assert [t.module.path for t in targets] == PATHS


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(PATTERNS) | st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
    st.none() | st.sampled_from([*PATTERNS, "all-linear"]),
    st.dictionaries(st.sampled_from(PATTERNS), st.integers(1, 64), max_size=3),
    st.sampled_from(LISTS),
)
def test_patterns_match_the_same_in_the_worker_process(wanted, excluded, ranks, layers_pattern):
    layers = [0, 1] if isinstance(wanted, list) else None
    config = config_of(
        target_modules=wanted,
        exclude_modules=excluded,
        rank_pattern=ranks,
        layers_to_transform=layers,
        layers_pattern=layers_pattern if layers else None,
    )
    targeted = [path for path in ("lm_head", "model.embed_tokens", *MODULES) if is_targeted(config, path, match_layer)]
    if targeted and targeted[0] in MODULES:
        expected = [target_of(config, MODULES[path], path, match_layer) for path in targeted]
        assert targets_of(config, NAMED, "here") == expected


@pytest.mark.parametrize("fields", [
    {"target_modules": r"(.+)+x"},
    {"target_modules": ["q_proj"], "exclude_modules": r"(.*.*)*(.*.*)*x"},
    {"rank_pattern": {r"(\w+\.?)+!": 3}},
    {"layers_to_transform": 1, "layers_pattern": r"(.+)+x"},
], ids=str)  # fmt: skip
def test_patterns_that_take_too_long_are_refused(fields, monkeypatch):
    monkeypatch.setattr("specserve_lora.patterns.TIMEOUT_SECONDS", TIMEOUT_SECONDS / 10)
    with pytest.raises(AdapterError, match=r"its patterns take more than 0\.5 seconds"):
        targets_of(config_of(**fields), NAMED, "here")
