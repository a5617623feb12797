"""All sections of a report, in the order in which they are found.

Torch is asked first: plugins set its threads. Modules that need torch or a readable model are imported by their own
section, so that their errors are rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_workbench.doctor.build_tools import build_tool_rows
from specserve_workbench.doctor.cores import core_rows
from specserve_workbench.doctor.gpu import gpu_rows
from specserve_workbench.doctor.installed_plugins import plugin_rows
from specserve_workbench.doctor.interpreter import interpreter_rows
from specserve_workbench.doctor.port import port_rows
from specserve_workbench.doctor.processor import processor_rows
from specserve_workbench.doctor.rows import Section, rows_of
from specserve_workbench.doctor.system_memory import memory_rows
from specserve_workbench.doctor.torch_build import torch_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from specserve_workbench.doctor.case import Case
    from specserve_workbench.doctor.rows import Check, Row


def model(case: Case) -> Iterable[Row]:
    from specserve_workbench.doctor.model_directory import directory_rows

    return directory_rows(case)


def model_memory(case: Case) -> Iterable[Row]:
    from specserve_workbench.doctor.model_memory import model_memory_rows

    return model_memory_rows(case)


def self_test(case: Case) -> Iterable[Row]:
    from specserve_workbench.doctor.self_test import self_test_rows

    return self_test_rows(case)


SECTIONS: Mapping[str, Sequence[Check]] = {
    "python": (interpreter_rows,),
    "torch": (torch_rows,),
    "processor": (processor_rows, core_rows),
    "memory": (memory_rows,),
    "build tools": (build_tool_rows,),
    "plugins": (plugin_rows,),
    "gpu": (gpu_rows,),
    "model": (model, model_memory),
    "port": (port_rows,),
}
SELF_TEST: Mapping[str, Sequence[Check]] = {"self-test": (self_test,)}


def examine(case: Case, sections: Mapping[str, Sequence[Check]]) -> Iterator[Section]:
    """Raises nothing but an interrupt: what a check raises is a row of its section."""
    for name, checks in sections.items():
        yield Section(name, rows_of(case, *checks))
