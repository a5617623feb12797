"""The encoding of namespaces: no two models or salts share one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specserve.namespaces import adapter_name, adapter_namespace, add_salt, is_model_namespace, strip_salt

names = st.text(st.sampled_from("a@1"), min_size=1, max_size=4)
versions = st.text(st.sampled_from("a1"), min_size=1, max_size=3)
models = st.just("") | st.builds(adapter_namespace, names, versions)
salts = st.none() | st.text(st.sampled_from("a@\0"), max_size=3)


@given(one=st.tuples(names, versions), other=st.tuples(names, versions))
def test_two_versions_of_adapters_have_two_namespaces(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (adapter_namespace(*one) == adapter_namespace(*other)) == (one == other)
    assert adapter_namespace(*one).rpartition("@")[::2] == one


@given(one=st.tuples(models, salts), other=st.tuples(models, salts))
def test_two_salts_of_a_model_have_two_namespaces(one: tuple[str, str | None], other: tuple[str, str | None]) -> None:
    assert (add_salt(*one) == add_salt(*other)) == (one == other)
    assert strip_salt(add_salt(*one)) == one[0]


@given(name=names, version=versions, salt=salts)
def test_a_namespace_tells_its_adapter(name: str, version: str, salt: str | None) -> None:
    assert adapter_name(add_salt(adapter_namespace(name, version), salt)) == name
    assert adapter_name(add_salt("", salt)) == ""
    assert adapter_name(add_salt("of another form", salt)) == "of another form"


def test_the_base_model_without_a_salt_has_the_empty_namespace() -> None:
    assert add_salt("", None) == ""
    assert add_salt("sql@1", "s") == "sql@1\0s"


@pytest.mark.parametrize(("adapter", "version"), [("a\0b", "1"), ("a", "1\0"), ("a", "1@2")])
def test_what_would_be_ambiguous_is_not_encoded(adapter: str, version: str) -> None:
    with pytest.raises(AssertionError):
        adapter_namespace(adapter, version)


def test_a_namespace_with_a_nul_is_no_models() -> None:
    assert is_model_namespace("sql@1")
    assert not is_model_namespace(add_salt("sql@1", "s"))
