"""Pictures that tools draw: held against the figures and the step that they show, and read on white and on black."""

from __future__ import annotations

import re

import msgspec
import pytest

import speed_plot
import step_picture
import svg
from doc_pages import ROOT
from specserve.types import GenerateRequest, SamplingParams
from specserve_workbench.testing.engines import make_engine, run_requests

IMAGES = ROOT / "docs" / "images"
PAGE = (ROOT / "docs" / "benchmarks.md").read_text()
RECORD = msgspec.json.decode((IMAGES / "step.json").read_bytes(), type=step_picture.Record)


def test_the_plot_is_drawn_from_the_tables_that_there_are():
    assert (IMAGES / "speed.svg").read_text() == speed_plot.drawn(speed_plot.panels(PAGE)), "make pages"


PLAIN = "`peers`, half-billion in bfloat16, plain greedy at 1 / 8 / 32 (one round)"
EDITS = "`peers`, n-gram speculation in all engines (3 rounds): edits; sampled at 0.8"
OTHER_PAGE = f"""
| {PLAIN} | 9 / 9 / 9 tokens/s: 9x / 9x / 9x vLLM | |

{speed_plot.MACHINE} with AVX512_BF16.

| {PLAIN} | 39 / 171 / 243 tokens/s: **1.1x** / 1.2x / 1.3x vLLM, 2.1x / **2.2x** / 2.3x OpenVINO | 1.5x; 1.3x |
| {EDITS} | 1 / 2 / 3 tokens/s: 3.1x / 3.2x / 3.3x vLLM, 4.1x / 4.2x / 4.3x OpenVINO; 1 / 2 / 3: 9x / 9x / 9x | 3x |

| random 1.5 B shape, Q4_K_M | decode, 1 | 41.8 | 31.1 | 25.6 | 5.1x / 6.1x | 1.1x |
| | decode, 8 | 166 | 48.9 | 102 | 5.2x / 6.2x | 2x |
| | decode, 32 | 196 | 68.8 | 143 | 5.3x / 6.3x | 3x: missed |
| | prompt of 2,000 tokens | 357 | 123 | 320 | 9x / 9x | 1x |
"""


def test_the_plot_has_the_figures_of_its_rows_and_of_no_others():
    few_bits, bfloat16, edits = speed_plot.panels(OTHER_PAGE)
    assert few_bits.ratios == {"llama.cpp": [5.1, 5.2, 5.3], "OpenVINO": [6.1, 6.2, 6.3]}
    assert bfloat16.ratios == {"vLLM": [1.1, 1.2, 1.3], "OpenVINO": [2.1, 2.2, 2.3]}
    assert edits.ratios == {"vLLM": [3.1, 3.2, 3.3], "OpenVINO": [4.1, 4.2, 4.3]}
    shown = re.findall(r">([\d.]+)x<", speed_plot.drawn([few_bits, bfloat16, edits]))
    assert sorted(map(float, shown)) == [tens + tenths / 10 for tens in range(1, 7) for tenths in (1, 2, 3)]


def test_a_row_that_is_gone_is_named():
    with pytest.raises(SystemExit, match="no row '`peers`, half-billion in bfloat16"):
        speed_plot.panels(OTHER_PAGE.replace(PLAIN, "another"))


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


@pytest.mark.parametrize("name", ["speed", "step"])
def test_pictures_have_no_ground_of_their_own_and_say_what_they_show(name):
    drawn = (IMAGES / f"{name}.svg").read_text()
    width = re.search(r'viewBox="0 0 (\d+)', drawn)
    assert width is not None
    assert f'width="{width[1]}"' in drawn.partition("\n")[0]
    assert f'<rect x="0" y="0" width="{width[1]}"' not in drawn
    assert re.search("<title>.{40,}</title>", drawn)
