"""What computes forward passes in another process: a model's part there, and batches as bytes."""

from specserve.batch.transport import receive, send
from specserve.engine.worker import Worker, load_worker

__all__ = ["Worker", "load_worker", "receive", "send"]
