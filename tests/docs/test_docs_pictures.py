"""Pictures that tools draw: held against the figures and the step that they show, and read on white and on black."""

from __future__ import annotations

import re

import msgspec
import pytest

import step_picture
import svg
from doc_pages import ROOT
from specserve.types import GenerateRequest, SamplingParams
from specserve_workbench.testing.engines import make_engine, run_requests

IMAGES = ROOT / "docs" / "images"
RECORD = msgspec.json.decode((IMAGES / "step.json").read_bytes(), type=step_picture.Record)


def test_the_picture_of_a_step_shows_the_recorded_one():
    assert (IMAGES / "step.svg").read_text() == step_picture.drawn(RECORD), "make pages"


def test_the_recorded_step_is_what_the_demo_model_writes_without_drafts():
    engine, _, tokenizer, _ = make_engine("demo", dtype="float32")
    params = SamplingParams(temperature=0, max_tokens=24)
    prompt = tuple(tokenizer.encode(RECORD.prompt))
    plain = run_requests(engine, [GenerateRequest(request_id="plain", prompt_token_ids=prompt, params=params)])
    text = RECORD.before + "".join(token.text for token in RECORD.step.tokens)
    assert tokenizer.decode(plain.outputs["plain"].tokens).startswith(text)


def test_a_step_adds_its_accepted_draft_tokens_and_one_of_the_model():
    accepted = [node.text for node in RECORD.step.draft if node.accepted]
    assert [token.text for token in RECORD.step.tokens[:-1]] == accepted
    assert RECORD.step.tokens[-1].drafter is None
    assert len({node.drafter for node in RECORD.step.draft}) == 2
    assert len(accepted) < len(RECORD.step.draft)


def test_children_are_right_of_their_parents_and_no_two_nodes_share_a_place():
    draft = RECORD.step.draft
    cells = step_picture.tree_cells(draft)
    assert len(set(cells)) == len(draft)
    for node, cell in zip(draft, cells, strict=True):
        assert cell.column == (1 if node.parent is None else cells[node.parent].column + 1)
    assert all((cell.row == 0) == node.accepted for node, cell in zip(draft, cells, strict=True))


def luminance(colour: str) -> float:
    """Relative, of #rrggbb, as WCAG 2 defines it."""
    parts = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("ground", ["#ffffff", "#0d1117"])
def test_text_is_read_on_white_and_on_black_pages(ground):
    assert contrast(svg.INK, ground) > 4.2


@pytest.mark.parametrize("chip", [svg.BLUE, svg.AMBER, svg.GREEN, svg.GREY])
def test_text_is_read_on_chips(chip):
    assert contrast(svg.ON_CHIP, chip) >= 4.5


@pytest.mark.parametrize("name", ["step"])
def test_pictures_have_no_ground_of_their_own_and_say_what_they_show(name):
    drawn = (IMAGES / f"{name}.svg").read_text()
    width = re.search(r'viewBox="0 0 (\d+)', drawn)
    assert width is not None
    assert f'width="{width[1]}"' in drawn.partition("\n")[0]
    assert f'<rect x="0" y="0" width="{width[1]}"' not in drawn
    assert re.search("<title>.{40,}</title>", drawn)
