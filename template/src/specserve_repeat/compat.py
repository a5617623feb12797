"""What holds where this plugin meets a feature. Imports nothing heavy: the commands that explain read it."""

from specserve.declare import Compatible

LORA = Compatible("a guess comes from the request's own tokens, whichever adapter wrote them")
