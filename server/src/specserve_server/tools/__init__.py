"""Tools: what may be called, and the forms in which models write calls. A file per form."""
