"""The tokenizer in a GGUF file: byte-level BPE as one of the library ``tokenizers``."""

from __future__ import annotations

from typing import NamedTuple

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split
from tokenizers.processors import TemplateProcessing

from prefix_cache.errors import MalformedFile
from prefix_cache.worker.hf_tokenizer import HFTokenizer
from prefix_cache.worker.loading.gguf_metadata import Metadata
from prefix_cache.worker.loading.hf_config import unsupported

_CONTROL = 3
_USER_DEFINED = 4
_ROLES = ("bos", "eos", "eot")

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class _Scheme(NamedTuple):
    """How text is cut before merging, whether whole tokens are taken unmerged, and BOS unasked."""

    pre_tokenizer: PreTokenizer
    ignore_merges: bool = False
    adds_bos: bool = False


_GPT2 = ByteLevel(add_prefix_space=False)
_SCHEMES = {
    "default": _Scheme(_GPT2),
    "gpt-2": _Scheme(_GPT2),
    "smollm": _Scheme(Sequence([Digits(individual_digits=True), _GPT2])),
    "llama-bpe": _Scheme(
        Sequence(
            [
                Split(Regex(_LLAMA3), behavior="isolated"),
                ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
        ignore_merges=True,
        adds_bos=True,
    ),
}


def read_tokenizer(metadata: Metadata) -> tuple[HFTokenizer, dict[str, str]]:
    """Return the tokenizer, and the texts of ``bos_token`` and ``eos_token``.

    Raises UnsupportedModel for another kind of tokenizer, or of cutting text.
    """
    name = metadata.path.stem
    if (kind := metadata.get("tokenizer.ggml.model", str)) != "gpt2":
        raise unsupported(name, "tokenizer.ggml.model", kind, "gpt2")
    cut = metadata.find("tokenizer.ggml.pre", str) or "default"
    if cut not in _SCHEMES:
        raise unsupported(name, "tokenizer.ggml.pre", cut, *_SCHEMES)
    scheme = _SCHEMES[cut]
    tokens = metadata.get("tokenizer.ggml.tokens", list[str])
    library = _library(metadata, scheme, tokens)
    ids = {role: metadata.find(f"tokenizer.ggml.{role}_token_id", int) for role in _ROLES}
    texts = {role: tokens[token_id] for role, token_id in ids.items() if token_id is not None}
    adds_bos = metadata.find("tokenizer.ggml.add_bos_token", bool)
    if "bos" in texts and (scheme.adds_bos if adds_bos is None else adds_bos):
        library.post_processor = TemplateProcessing(
            single=[texts["bos"], "$A"], special_tokens=[(texts["bos"], ids["bos"])]
        )
    eos_ids = {token_id for role, token_id in ids.items() if role != "bos" and token_id is not None}
    special_tokens = {f"{role}_token": text for role, text in texts.items() if role != "eot"}
    return HFTokenizer(library, eos_ids), special_tokens


def _library(metadata: Metadata, scheme: _Scheme, tokens: list[str]) -> Tokenizer:
    merges = metadata.get("tokenizer.ggml.merges", list[str])
    types = metadata.get("tokenizer.ggml.token_type", list[int])
    ids = {token: token_id for token_id, token in enumerate(tokens)}
    try:
        pairs = [(left, right) for left, right in (merge.split(" ") for merge in merges)]
        library = Tokenizer(BPE(ids, pairs, ignore_merges=scheme.ignore_merges))
    except Exception as error:  # the library raises nothing narrower
        raise MalformedFile(
            f"{metadata.path} has a tokenizer that is no BPE: {error}", file=str(metadata.path)
        ) from error
    library.pre_tokenizer = scheme.pre_tokenizer
    library.decoder = ByteLevelDecoder()
    library.add_tokens(
        [
            AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, kind in zip(tokens, types, strict=False)
            if kind in (_CONTROL, _USER_DEFINED)
        ]
    )
    return library
