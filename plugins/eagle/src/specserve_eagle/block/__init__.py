"""Block heads: a draft model that proposes all tokens of a block in one pass, and chains them by a low-rank head.

DFlash (Chen et al., 2026) reads the target's hidden states as keys and values of every layer, so that committed tokens
need no pass; the block is the last token and mask tokens, which see each other. DSpark (DeepSeek, 2026) adds what each
token makes of the next one's logits, and a head that says how likely it is accepted.
"""
