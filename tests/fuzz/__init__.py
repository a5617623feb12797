"""The combination fuzzer: random models, configurations and requests against the guarantee that nothing beside a
request changes its tokens or log-probabilities, by one bit. `make fuzz SECONDS=600 SEED=1`; docs/testing.md.

A trial is a `plans.Plan`, plain data. It is drawn (`drawing`), run on a real engine (`trial`), compared with what each
request gives alone (`reference`, `results`), and checked (`judge`). What was reached is counted (`reached`,
`coverage`); what fails is minimised (`minimise`) and saved.
"""
