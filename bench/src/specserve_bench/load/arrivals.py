"""When requests are sent at a rate."""

from __future__ import annotations

import math
import random
from itertools import accumulate


def arrival_times(count: int, rate: float, burstiness: float, seed: int) -> list[float]:
    """Seconds since the begin at which each request is sent, as `vllm bench serve` chooses them.

    Intervals are gamma distributed with mean 1 / rate: Poisson arrivals at burstiness 1, more even above, in bursts
    below. They are scaled so that the last request is sent at count / rate.
    """
    if math.isinf(rate):
        return [0.0] * count
    chance = random.Random(seed)
    intervals = [chance.gammavariate(burstiness, 1 / (rate * burstiness)) for _ in range(count)]
    times = list(accumulate(intervals))
    scale = count / rate / times[-1]
    return [at * scale for at in times]
