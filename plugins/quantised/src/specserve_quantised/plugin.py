"""The hook of quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import hookimpl

if TYPE_CHECKING:
    from specserve.api.models import WeightFormat


@hookimpl
def weight_formats() -> list[WeightFormat]:
    from specserve_quantised.awq import Awq
    from specserve_quantised.compressed_tensors import CompressedTensors
    from specserve_quantised.gptq import Gptq
    from specserve_quantised.mxfp4 import Mxfp4

    return [CompressedTensors(), Gptq(), Awq(), Mxfp4()]
