"""The conformance kit: `pytest --specserve-plugin NAME` runs an installed plugin against everything it is declared for.

`cases` says with what a plugin is run, `test_plugin` runs it, and pytest finds both in
`specserve_workbench.testing.fixtures`.
"""
