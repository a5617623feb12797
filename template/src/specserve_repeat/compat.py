"""What holds where this plugin meets a feature. Imports nothing heavy: the commands that explain read it."""

from specserve.declare import Compatible

OTHER_DRAFTERS = Compatible("drafts are compared and the one that promises most is verified")
