"""The pictures of docs/playground.md, taken of a server that runs: `python tests/page/screenshots.py URL`."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

from browser import DESKTOP, PHONE, Browser, browser
from PIL import Image

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PROMPT = """\
    def test_add(self):
        self.assertEqual(add(1, 2), 3)
        self.assertEqual(add(2, 2), 4)
        self.assertEqual(add("""
PICTURES = (
    ("playground", "completion", DESKTOP, "light"),
    ("playground_race", "race", DESKTOP, "dark"),
    ("playground_phone", "completion", PHONE, "dark"),
    ("playground_plugins", "plugins", DESKTOP, "light"),
)


def main(url: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    with browser() as page:
        for name, view, size, theme in PICTURES:
            page.open(f"{url.rstrip('/')}/#{view}", size, theme)
            page.wait(lambda: page.text("#served"))
            show(page, view)
            picture = Image.open(BytesIO(page.driver.get_screenshot_as_png())).convert("RGB")
            picture.quantize(128).save(IMAGES / f"{name}.png", optimize=True)
            print(f"{name}.png: {(IMAGES / f'{name}.png').stat().st_size // 1000} kB")


def show(page: Browser, view: str) -> None:
    if view == "plugins":
        page.one(".cell.conflict").click()
        page.script("document.querySelector('.matrix').scrollIntoView()")
        return
    page.fill(f"#{view}-prompt", PROMPT)
    page.one(f"#{view}-form .primary").click()
    page.wait(lambda: page.text(f"#{view}-form .primary") != "Stop")
    if view == "completion":
        step = "return [...document.querySelectorAll('.step')].find((s) => s.children.length > 2)?.children[1]"
        page.point_at(page.script(step))


if __name__ == "__main__":
    main(sys.argv[1])
