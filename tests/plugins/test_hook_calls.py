"""How the host calls hooks: who answers, with whose options, and whose fault it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import ConfigError, ModelNotFoundError, PluginError
from specserve.hookspecs import hookimpl

if TYPE_CHECKING:
    from fake_site import Start


class Adapter(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    scale: float = 1.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    width: Annotated[int, msgspec.Meta(ge=1, le=8)] = 4
    adapters: dict[str, Adapter] = {}
    order: Literal["newest", "likeliest"] = "newest"


class Drafts:
    @hookimpl
    def plugin_options(self) -> type[Options]:
        return Options

    @hookimpl
    def make_drafter(self, options: Options) -> str:
        return f"drafts {options.width}"


class Planner:
    @hookimpl
    def make_draft_planner(self) -> str:
        return "planner"


def given(**plugins: Any) -> dict[str, InProcessPlugin]:
    agree = {"draft.chain": "they know each other"}
    return {
        name: InProcessPlugin(plugin, PluginDeclaration(name=name, provides={"draft.chain": ""}, compatible=agree))
        for name, plugin in plugins.items()
    }


def test_a_plugin_that_is_given_as_an_object_is_enabled(start: Start) -> None:
    assert start(extra=given(a=Drafts(), b=Planner())).loaded_names == ("a", "b")
    assert start("b", extra=given(a=Drafts(), b=Planner())).loaded_names == ("b", "a")


def test_every_plugin_gets_its_own_options(start: Start) -> None:
    host = start(extra=given(a=Drafts(), b=Drafts()), plugin_options={"b": {"width": "7"}})
    assert host.collect("make_drafter", model=None) == [("a", "drafts 4"), ("b", "drafts 7")]
    assert host.options("b") == Options(width=7)
    assert host.describe()[1]["options"] == {"width": 7, "adapters": {}, "order": "newest"}


def test_a_plugin_without_options_has_none_and_takes_none(start: Start) -> None:
    assert start(extra=given(a=Planner())).options("a") is None
    with pytest.raises(PluginError, match="plugin a takes no options; got width"):
        start(extra=given(a=Planner()), plugin_options={"a": {"width": 1}})


def test_a_role_with_one_owner_refuses_two(start: Start) -> None:
    host = start(extra=given(a=Planner(), b=Planner()))
    with pytest.raises(PluginError, match="a and b both answer make_draft_planner, which only one plugin may own"):
        host.single("make_draft_planner", runtime=None)


def test_a_plugins_result_goes_before_the_cores_own(start: Start) -> None:
    class Kernels:
        @hookimpl
        def make_kernels(self, device: str) -> str | None:
            return "native" if device == "cpu" else None

    host = start(extra=given(fast=Kernels()))
    assert host.single("make_kernels", device="cpu", dtype="float32") == ("fast", "native")
    assert host.single("make_kernels", device="cuda", dtype="float32") == ("builtin", "torch kernels")
    assert host.single("make_verifier") is None


def test_a_plugin_that_raises_in_a_hook_is_named_with_the_hook(start: Start) -> None:
    class Broken:
        @hookimpl
        def make_observer(self) -> None:
            raise KeyError("weights")

    host = start(extra=given(a=Broken()))
    with pytest.raises(PluginError, match="plugin a failed in its hook make_observer: KeyError: 'weights'"):
        host.collect("make_observer")


def test_a_deliberate_error_of_a_plugin_passes_unchanged(start: Start) -> None:
    class Strict:
        @hookimpl
        def resolve_model(self, name: str) -> None:
            raise ModelNotFoundError(f"no adapter {name}")

    with pytest.raises(ModelNotFoundError, match=r"^no adapter x$"):
        start(extra=given(a=Strict())).collect("resolve_model", name="x")


def test_a_misspelt_option_is_named_with_the_nearest_one(start: Start) -> None:
    with pytest.raises(ConfigError, match=r"a\.widht is not an option; did you mean 'width'\? \(options of a: w"):
        start(extra=given(a=Drafts()), plugin_options={"a": {"widht": 1}})


@pytest.mark.parametrize(
    ("got", "said"), [("many", "must be a whole number from 1 to 8"), ("9", "must be a whole number from 1 to 8")]
)
def test_an_option_of_the_wrong_type_or_range_is_named(start: Start, got: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"a\.width: {said} \(the value is '{got}'\)"):
        start(extra=given(a=Drafts()), plugin_options={"a": {"width": got}})


def test_an_option_with_few_values_names_them(start: Start) -> None:
    said = r"a\.order: must be one of 'newest', 'likeliest' \(the value is 'oldest'\)"
    with pytest.raises(ConfigError, match=said):
        start(extra=given(a=Drafts()), plugin_options={"a": {"order": "oldest"}})


def test_a_misspelt_key_within_a_table_of_tables_is_found(start: Start) -> None:
    with pytest.raises(ConfigError, match=r"a\.adapters\.law\.scales is not an option; did you mean 'scale'"):
        start(extra=given(a=Drafts()), plugin_options={"a": {"adapters": {"law": {"path": "/x", "scales": 2}}}})


def test_options_of_a_plugin_that_does_not_run_are_refused(start: Start) -> None:
    with pytest.raises(ConfigError, match=r"plugin ab, which is not installed; did you mean 'abc'\?"):
        start(extra=given(abc=Drafts()), plugin_options={"ab": {"width": 1}})
