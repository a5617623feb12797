"""Files that plugins read and keep: within a root that the configuration names, models, tokenizers, JSON, a cache."""

from specserve.confine import OutsideRootError, expand_user, find_root, resolve, resolve_inside
from specserve.model_files import RawJson, read_json, read_optional_json
from specserve.models.locate import locate_model, locate_on_disk, locate_target, locate_tokenizer
from specserve.text.tokenizer import HfTokenizer
from specserve.user_cache import user_cache
from specserve_checks.json_syntax import explain_json_error
from specserve_checks.wrong_values import convert, find_wrong_value

__all__ = [
    "HfTokenizer",
    "OutsideRootError",
    "RawJson",
    "convert",
    "expand_user",
    "explain_json_error",
    "find_root",
    "find_wrong_value",
    "locate_model",
    "locate_on_disk",
    "locate_target",
    "locate_tokenizer",
    "read_json",
    "read_optional_json",
    "resolve",
    "resolve_inside",
    "user_cache",
]
