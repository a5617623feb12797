"""Why the plugin works with features of others. Imports nothing heavy: `specserve plugins` reads it."""

from specserve.api import Compatible

DRAFTS = Compatible("drafts are compared and the one that promises most is verified")
