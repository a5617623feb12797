"""Functions that enter inference mode where it is off."""

from __future__ import annotations

import torch

from specserve.inference import inference


@inference
def is_on(*, then: bool) -> tuple[bool, bool]:
    return torch.is_inference_mode_enabled(), then


def test_inference_mode_is_on_within_and_as_before_afterwards():
    assert is_on(then=True) == (True, True)
    assert not torch.is_inference_mode_enabled()
    with torch.inference_mode():
        assert is_on(then=False) == (True, False)
        assert torch.is_inference_mode_enabled()


def test_a_fault_leaves_the_mode_as_it_was():
    @inference
    def fails() -> None:
        raise OSError("gone")

    try:
        fails()
    except OSError:
        assert not torch.is_inference_mode_enabled()
    else:
        raise AssertionError
    assert fails.__name__ == "fails"
