"""A request, its spans and drafts, and the rows of one step: the data that the stages of a step hand on."""
