"""What this plugin declares about features of others. Imports nothing heavy: `specserve plugins` reads it."""

from specserve.declare import Compatible

OTHER_DRAFTERS = Compatible("drafts are compared and the one that promises most is verified")
