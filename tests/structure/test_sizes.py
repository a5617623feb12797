"""Sizes that keep the code readable. A file or a function beyond its limit holds two ideas: divide it."""

from __future__ import annotations

from statistics import median, quantiles

from measures import PRODUCT, functions, names, num_lines, sources

MAX_FILE_LINES = 300
MEDIAN_FILE_LINES = 100
MAX_FUNCTION_LINES = 75
"""A training loop and a GPU kernel, each one loop, come near it."""
P90_FUNCTION_LINES = 20
MANY_ARGUMENTS = 6
MAX_FUNCTIONS_OF_MANY_ARGUMENTS = 3
"""Beside functions of GPU kernels, which take pointers, sizes and constants one by one."""
MAX_ANY_IN_CORE = 40
"""`Any` turns the type checker off. It stands where JSON, plugins and checkpoints come in."""


def test_no_file_is_too_long_to_read_at_once():
    every = sources(*PRODUCT, "benchmarks", "tests")
    assert len(every) > 300, "the sources were found"
    assert not [f"{path}: {num_lines(path)} lines" for path in every if num_lines(path) > MAX_FILE_LINES]


def test_most_files_are_short():
    assert median(num_lines(path) for path in sources(*PRODUCT)) < MEDIAN_FILE_LINES


def test_no_function_is_too_long_to_read_at_once():
    assert not [function for function in functions(*PRODUCT) if function.num_lines > MAX_FUNCTION_LINES]


def test_most_functions_are_short():
    assert quantiles((function.num_lines for function in functions(*PRODUCT)), n=10)[-1] <= P90_FUNCTION_LINES


def test_few_functions_take_many_arguments():
    others = [function for function in functions(*PRODUCT) if not function.on_gpu]
    many = [function for function in others if function.num_arguments > MANY_ARGUMENTS]
    assert len(many) <= MAX_FUNCTIONS_OF_MANY_ARGUMENTS, many


def test_the_core_says_its_types():
    assert len(names("Any", "core")) <= MAX_ANY_IN_CORE
