"""How a text is cut before byte-pair merging, by the names of `tokenizer.ggml.pre`.

A pre-tokenizer is a list of steps in the form of the library tokenizers. The expressions are those of the models' own
tokenizer.json. Knows no vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Step: TypeAlias = dict[str, object]


def split(*expressions: str) -> tuple[Step, ...]:
    """Each match of the first expression is a piece and so is what lies between; those are cut by the next one."""
    return tuple(
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False} for each in expressions
    )


def byte_level(use_regex: bool) -> Step:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


BYTES = byte_level(False)
GPT2 = byte_level(True)
"""Cuts as GPT-2 does before it writes bytes."""
DIGITS: Step = {"type": "Digits", "individual_digits": True}

WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
"""GPT-2's; what it leaves is blanks."""
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(ending: str, digits: str) -> str:
    """Words are cut where a capital letter follows a small one."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    words = f"{lead}{UPPER}*{LOWER}+{ending}|{lead}{UPPER}+{LOWER}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"


LLAMA3 = rf"{ENDINGS}|{LETTERS}|\p{{N}}{{1,3}}|{MARKS}|{BLANKS}"
QWEN2 = rf"{ENDINGS}|{LETTERS}|\p{{N}}|{MARKS}|{BLANKS}"
QWEN35 = rf"{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{BLANKS}"
GPT4O = cased(f"{ENDINGS}?", r"\p{N}{1,3}")
TEKKEN = cased("", r"\p{N}")
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
SEED_CODER = rf"{ENDINGS}|{LETTERS}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{BLANKS}"
EXAONE_MOE = (
    rf"{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
JAIS2 = (
    rf"{ENDINGS}|{LETTERS}|\p{{N}}{{1,3}}|{MARKS}|\s*[\r\n]+|\s{{512}}(?!\S)|\s{{256}}(?!\S)|\s{{128}}(?!\S)"
    r"|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"
)
DEEPSEEK_LETTERS = (
    "\\s?[A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-"
    "\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-"
    "\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80"
    "-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-"
    "\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"
)
"""Letters with two cases. Escaped, since editors make one character of some that look alike."""
DEEPSEEK_MARKS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
IDEOGRAPHS = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{BLANKS}",
)
BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
OLD = (r"[\p{P}\$\+<=>\^~\|]+", WORDS, r"\p{N}+", r"[0-9][0-9][0-9]")


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    steps: tuple[Step, ...]
    nfc: bool = False
    """Whether the text is brought into the normal form NFC first. The file does not say it; the model's own tokenizer
    does. llama.cpp does not."""
    whole_words: bool = False
    """A piece that is a token is that token, whatever merges would make of it (`ignore_merges`)."""
    begins_with_bos: bool = False
    """Where the file does not say whether BOS is added."""


LLAMA = PreTokenizer((*split(LLAMA3), BYTES), whole_words=True, begins_with_bos=True)
CL100K = PreTokenizer((*split(LLAMA3), BYTES))
QWEN = PreTokenizer((*split(QWEN2), BYTES), nfc=True)
ONE_DIGIT = PreTokenizer((*split(QWEN2), BYTES))
O200K = PreTokenizer((*split(GPT4O), BYTES))
GPT = PreTokenizer((GPT2,))
GPT_NFC = PreTokenizer((GPT2,), nfc=True)
GPT_DIGITS = PreTokenizer((DIGITS, GPT2))
DEEPSEEK3 = PreTokenizer((*split(*DEEPSEEK_V3), BYTES))
BAILINGMOE = PreTokenizer((*split(BAILING), BYTES))
DEFAULT = PreTokenizer((*split(*OLD), BYTES))
"""What files are read with that do not say how: as llama.cpp does."""

PRE_TOKENIZERS = {
    "default": DEFAULT,
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"), LLAMA),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe"), CL100K),
    **dict.fromkeys(("glm4", "glm5"), PreTokenizer(CL100K.steps, whole_words=True)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "megrez"), QWEN),
    **dict.fromkeys(("stablelm2", "hunyuan", "solar-open", "grok-2"), ONE_DIGIT),
    "qwen35": PreTokenizer((*split(QWEN35), BYTES), nfc=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), O200K),
    "tekken": PreTokenizer((*split(TEKKEN), BYTES), whole_words=True, begins_with_bos=True),
    **dict.fromkeys(("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "exaone4", "jais", "trillion"), GPT),
    "granite-docling": GPT,
    **dict.fromkeys(("mpt", "olmo"), GPT_NFC),
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"), GPT_DIGITS),
    "command-r": PreTokenizer(GPT_DIGITS.steps, nfc=True),
    "deepseek-llm": PreTokenizer(
        (*split(r"[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_MARKS, r"\s+$", IDEOGRAPHS), DIGITS, BYTES)
    ),
    "deepseek-coder": PreTokenizer((*split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", IDEOGRAPHS), DIGITS, BYTES)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), DEEPSEEK3),
    "falcon": PreTokenizer((*split(r"[\p{P}\$\+<=>\^~\|`]+", WORDS, r"[0-9][0-9][0-9]"), BYTES)),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), BAILINGMOE),
    "seed-coder": PreTokenizer((*split(SEED_CODER), BYTES)),
    "exaone-moe": PreTokenizer((*split(EXAONE_MOE), BYTES)),
    "jais-2": PreTokenizer((*split(JAIS2), BYTES)),
    "minicpm5": PreTokenizer(
        (*split(r"\p{N}{1,3}", rf"{ENDINGS}|{LETTERS}|\p{{N}}+|{MARKS}|{BLANKS}"), BYTES), whole_words=True
    ),
    **dict.fromkeys(("tiny_aya", "cohere2moe"), PreTokenizer((*split(r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O), BYTES))),
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), PreTokenizer((*split(BLOOM), BYTES))),
    "viking": PreTokenizer((*split(BLOOM), DIGITS, BYTES)),
}
"""By name, as converters of llama.cpp write them for models that generate."""
