"""What quantised declares. Only reading weights, it works with every plugin.

Imports nothing heavy: `specserve plugins explain` reads it.
"""

ADDED = "weights of 4 and 8 bits of GPTQ, AWQ and compressed-tensors, and MXFP4"
