"""What is examined: a configuration, a machine, and what several checks need of them, each found once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from specserve.faults import FAULTS
from specserve.models.locate import locate_downloaded, locate_on_disk
from specserve.plugins.host import PluginHost
from specserve.system_files import SYSTEM, read_system_file
from specserve_workbench.doctor.needed import UnknownError, needed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from specserve.config import EngineConfig
    from specserve.engine.roles import OwnedKernels
    from specserve.models.config import ModelConfig
    from specserve.models.family import ModelFamily
    from specserve.models.library import ModelLibrary
    from specserve.models.weight_format import WeightFormat
    from specserve_server.config import ServerConfig
    from specserve_workbench.doctor.checkpoint_size import CheckpointSize

T = TypeVar("T")
FALLBACK_DTYPE = "bfloat16"
"""Where no checkpoint says what is served."""


class Once(Generic[T]):
    """Calls a function once; then its value, or the same error, again."""

    def __init__(self, find: Callable[[], T]) -> None:
        self.find = find
        self.values: list[T] = []
        self.error: BaseException | None = None

    def __call__(self) -> T:
        if self.error is not None:
            raise self.error
        if not self.values:
            try:
                self.values.append(self.find())
            except FAULTS as error:
                self.error = error
                raise
        return self.values[0]


class Case:
    """`root`: where the system's files are, such as proc/cpuinfo."""

    def __init__(self, engine: EngineConfig, server: ServerConfig, root: Path = SYSTEM) -> None:
        self.engine, self.server, self.root = engine, server, root
        self.host = Once(lambda: PluginHost.start(engine))
        """The plugins, as `serve` starts them."""
        self.model_path = Once(lambda: locate_on_disk(engine.model) or locate_downloaded(engine.model))
        """None for a hub id that was not downloaded yet."""
        self.families = Once(self._collect_families)
        self.formats = Once(self._collect_formats)
        self.model_config = Once(self._read_config)
        self.weights = Once(self._measure_weights)
        self.resolved = Once(self._resolve)
        """The configuration with dtype and threads."""
        self.kernels = Once(self._make_kernels)

    def read(self, path: str) -> str:
        """A file of the system; empty where it is missing or not readable."""
        return read_system_file(self.root / path)

    def path(self) -> Path:
        """The model's directory, for checks behind the one that finds it."""
        with needed("the model was not found"):
            path = self.model_path()
        if path is None:
            raise UnknownError("the model is not on this machine")
        return path

    def _read_config(self) -> ModelConfig:
        from specserve.models.library import library_of
        from specserve.models.read_config import read_config

        served_by = library_of(self.path(), self.families(), self._collect_libraries())
        if served_by is not None:
            raise UnknownError(
                f"the library {served_by.library.name} computes this model: serve it to see whether it can"
            )
        return read_config(self.path(), self.families())

    def _collect_libraries(self) -> Sequence[ModelLibrary]:
        from specserve.engine.model_roles import collect_libraries

        try:
            return collect_libraries(self.engine, self.host())
        except FAULTS:  # another check says why
            return ()

    def _collect_families(self) -> Sequence[ModelFamily]:
        from specserve.engine.model_roles import collect_families
        from specserve.models.families import BUILT_IN

        try:
            return collect_families(self.engine, self.host())
        except FAULTS:  # another check says why
            return BUILT_IN

    def _collect_formats(self) -> Sequence[WeightFormat]:
        from specserve.engine.model_roles import collect_formats
        from specserve.models.open_weights import BUILT_IN

        try:
            return collect_formats(self.engine, self.host())
        except FAULTS:  # another check says why
            return BUILT_IN

    def _measure_weights(self) -> CheckpointSize:
        from specserve_workbench.doctor.checkpoint_size import checkpoint_size

        config = self.model_config()
        dtype = config.dtype if self.engine.dtype == "auto" else self.engine.dtype
        return checkpoint_size(self.path(), config, dtype, self.families(), self.formats())

    def _resolve(self) -> EngineConfig:
        from specserve.engine.resolve_config import resolve_config

        with needed("the plugins do not start"):
            started = self.host().config  # with the graphs that its plugins run with
        try:
            dtype = self.model_config().dtype
        except FAULTS:
            dtype = FALLBACK_DTYPE
        return resolve_config(started, dtype)

    def _make_kernels(self) -> OwnedKernels:
        from specserve.engine.roles import make_kernels

        return make_kernels(self.resolved(), self.host())
