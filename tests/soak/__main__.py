"""`python -m soak`: see docs/testing.md. Exit code 1 where something was lost, wrong or left."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from server_process import FORMS
from soak.campaign import Table, soak
from soak.setting import demo_setting, toy_setting

if TYPE_CHECKING:
    from soak.setting import Setting


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", choices=("demo", "toy"), default="demo")
    parser.add_argument("--form", choices=FORMS, help="default: what the server chooses by the number of cores")
    parser.add_argument("--folder", type=Path, default=Path("build/soak"), help="for logs and failures; emptied first")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)
    folder = arguments.folder.resolve()
    setting = demo_setting(folder) if arguments.model == "demo" else toy_setting(folder)
    return asyncio.run(run(setting._replace(form=arguments.form), arguments.seed, arguments.minutes * 60))


async def run(setting: Setting, seed: int, seconds: float) -> int:
    print(f"== {setting.num_cases} references", flush=True)
    table = await Table.make(setting, seed)
    print(f"== {seconds:.0f} seconds of {setting.num_clients} clients, seed {seed}", flush=True)
    report = await soak(setting, seed, seconds, table)
    print("\n".join(report.lines()), flush=True)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
