"""The combination fuzzer: random models, configurations and requests against the promise that nothing beside a
request changes its tokens or log-probabilities, by one bit. `make fuzz SECONDS=600 SEED=1`; docs/testing.md.

A trial is a `plans.Plan`, plain data. It is drawn (`drawing`), run on a real engine (`trial`), held against what each
request gives alone (`reference`, `results`), and judged (`judge`). What was reached is counted (`reached`, `coverage`);
what fails is made small (`minimise`) and saved.
"""
