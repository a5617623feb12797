"""The conformance kit: `pytest --specserve-plugin NAME` runs an installed plugin against everything it is declared for.

`cases` says with what a plugin is run, `test_plugin` runs it, `specserve.testing.fixtures` is where pytest finds both.
"""
