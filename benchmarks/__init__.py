"""What specserve costs and gains on this machine, as ratios within one run.

`python -m benchmarks` runs everything; docs/benchmarks.md says what each benchmark measures. `cases` holds one module
per benchmark, each with a `run(options) -> Result`; none of them is imported before it is asked for. `lib` is what
they share; `peers` and `replay` belong to the cases of these names.
"""
