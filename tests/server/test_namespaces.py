"""The encoding of namespaces: no two adapters or salts share one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specserve.namespaces import adapter_id, adapter_name, is_adapter_id, namespace_of

names = st.text(st.sampled_from("a@1"), min_size=1, max_size=4)
versions = st.text(st.sampled_from("a1"), min_size=1, max_size=3)
adapters = st.just("") | st.builds(adapter_id, names, versions)
salts = st.none() | st.text(st.sampled_from("a@\0"), max_size=3)


@given(one=st.tuples(names, versions), other=st.tuples(names, versions))
def test_two_versions_of_adapters_have_two_ids(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (adapter_id(*one) == adapter_id(*other)) == (one == other)
    assert adapter_id(*one).rpartition("@")[::2] == one


@given(one=st.tuples(adapters, salts), other=st.tuples(adapters, salts))
def test_two_salts_have_two_namespaces(one: tuple[str, str | None], other: tuple[str, str | None]) -> None:
    assert (namespace_of(*one) == namespace_of(*other)) == (one == other)


@given(name=names, version=versions)
def test_an_id_tells_its_adapter(name: str, version: str) -> None:
    assert adapter_name(adapter_id(name, version)) == name
    assert adapter_name("") == ""
    assert adapter_name("of another form") == "of another form"


def test_the_base_model_without_a_salt_has_the_empty_namespace() -> None:
    assert namespace_of("", None) == ""
    assert namespace_of("sql@1", "s") == "sql@1\0s"


@pytest.mark.parametrize(("adapter", "version"), [("a\0b", "1"), ("a", "1\0"), ("a", "1@2")])
def test_what_would_be_ambiguous_is_not_encoded(adapter: str, version: str) -> None:
    with pytest.raises(AssertionError):
        adapter_id(adapter, version)


def test_an_id_holds_no_nul() -> None:
    assert is_adapter_id("sql@1")
    assert not is_adapter_id("sql@1\0s")
