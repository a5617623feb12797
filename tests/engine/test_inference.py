"""Functions that enter inference mode where it is off."""

from __future__ import annotations

import torch

from specserve.inference import inference
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import plain_run, run
from specserve_workbench.testing.requests import toy_request


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


def test_plugins_are_asked_for_drafts_outside_of_it(toy_model):
    """A drafter may train itself as it goes, and may write to its tensors between steps."""
    requests = [toy_request("a", range(1, 20), max_tokens=20)]
    expected, modes = plain_run(toy_model, requests), []

    class Learner(OracleDrafter):
        def propose(self, *arguments):
            modes.append(torch.is_inference_mode_enabled())
            weight = torch.ones(2, requires_grad=True)
            weight.sum().backward()
            return super().propose(*arguments)

    outcome = run(toy_model, requests, Learner(expected.tokens(), 2))
    assert outcome.tokens() == expected.tokens()
    assert outcome.metrics.num_accepted_tokens
    assert set(modes) == {False}
