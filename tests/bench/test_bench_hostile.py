"""Reports on servers and prompts whose names are HTML, CSS or TeX: they are text, and nothing is loaded for them."""

from __future__ import annotations

import asyncio
import json
import sys
from html.parser import HTMLParser

from measured_server import DONE, answering, text_event, usage_event

from specserve_bench.output.plots import Curve, Labels, curves

SCRIPT = '<script src="https://evil.example/x.js">alert(1)</script>'
IMAGE = """"><img src=x onerror='alert(2)'>"""
END_OF_STYLE = "</style></svg></main><iframe src=//evil.example>"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "div", "pre"),
    *("table", "thead", "tbody", "tr", "th", "td", "svg", "defs", "g", "path", "text", "use", "rect", "clippath"),
}
REFERENCES = ("src", "href", "xlink:href", "srcset", "data", "action", "poster")


class Loaded(HTMLParser):
    """Tags, attributes that a browser acts on, and text."""

    def __init__(self, report):
        super().__init__()
        self.tags, self.references, self.handlers, self.text = set(), [], [], ""
        self.feed(report)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.references += [value for name, value in attrs if name in REFERENCES]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data):
        self.text += data


async def test_what_a_server_says_is_text(tmp_path):
    drafters = {IMAGE: {"num_draft_tokens": 4, "num_accepted_draft_tokens": 2}}
    metrics = {"speculative_decoding": {"num_draft_tokens": 4, "num_accepted_draft_tokens": 2, "drafters": drafters}}
    told = {"steps": [{"stopped": END_OF_STYLE, "reason": SCRIPT}]}
    event = {"choices": [{"text": "a", "speculation": told}]}
    pieces = [f"data: {json.dumps(event)}\n\n".encode(), text_event("", '"stop"')]
    pieces += [usage_event(7, 9, json.dumps(metrics)), DONE]
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "a", "kind": SCRIPT}, {"prompt": "b", "kind": "$\\bad{$"}, {"prompt": "c", "kind": "_hidden"}]
    prompts.write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "report.html"
    async with answering(pieces, model=SCRIPT) as server:
        words = ("--prompts", str(prompts), "--requests", "6", "--warm-up", "0", "--speculation", "--report", str(out))
        command = (sys.executable, "-m", "specserve", "bench", "serve", str(server.make_url("")), *words)
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b""), errors
    page = Loaded(out.read_text())
    assert page.tags <= TAGS
    assert page.handlers == []
    assert [each for each in page.references if not each.startswith("#")] == []
    for name in (SCRIPT, IMAGE, END_OF_STYLE, "$\\bad{$", "_hidden"):
        assert name in page.text
    assert SCRIPT.encode() in output  # a terminal shows it as it is


def test_a_plot_names_every_curve_whatever_it_is_called():
    names = ("$x_$", "_a", "<b>", "a & b", "{x}", "\\alpha")
    svg = curves(Labels("t", "x", "y"), [Curve(name, [1.0, 2.0], [0.5, 1.0]) for name in names])
    assert all(name in Loaded(svg).text for name in names)
