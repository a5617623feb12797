"""What drafters with decoder layers of their own stand on: a draft model in step with its target, request by request.

`DraftModelRuntime` is made of what `Drafter.connect` gets. It says which committed tokens the layers lack (`Feed`), and
makes batches of draft tokens behind them (`DraftRows`).
"""

from specserve_draft_models.passes import DraftRows, Feed, Masks
from specserve_draft_models.runtime import DraftModelRuntime
from specserve_draft_models.sequences import FedSequence

__all__ = ["DraftModelRuntime", "DraftRows", "FedSequence", "Feed", "Masks"]
