"""specserve: a speculative-decoding server whose features are plugins with proven compatibility.

Importing the package imports nothing heavy; take what you need from its modules
(`specserve.config`, `specserve.engine.engine`, `specserve.engine.async_engine`, `specserve_workbench.testing`).
"""

__version__ = "0.1.0"
