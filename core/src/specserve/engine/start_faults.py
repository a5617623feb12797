"""A fault of a plugin's part while the engine is built, named with the plugin and the author's line.

What hooks return is called from many places then: kernel sets pack and fuse, attention backends are built, drafters
get their layers, planners state what they know.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from specserve.engine.lack_of_memory import is_lack_of_memory
from specserve.errors import PluginError, SpecserveError
from specserve.faults import FAULTS, full_summary
from specserve.plugins.blame import CORE, Blame
from specserve.plugins.error_messages import how_to_disable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve.plugins.host import PluginHost


@contextmanager
def faults_named(host: PluginHost) -> Iterator[None]:
    """Raises PluginError where code of a plugin raises within the block. Other errors pass."""
    try:
        yield
    except SpecserveError:
        raise
    except FAULTS as error:
        plugin, _ = Blame(host.roles(), host.packages()).find(error, "")
        if plugin == CORE or is_lack_of_memory(error):
            raise
        raise PluginError(
            f"plugin {plugin} {full_summary(error, None)} while the engine was built. Repair the plugin. "
            f"{how_to_disable(plugin)}"
        ) from error
