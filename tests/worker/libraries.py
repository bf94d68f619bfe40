"""Small tokenizers of the library ``tokenizers``, made in memory."""

from __future__ import annotations

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

BOS = "<s>"
EOS = "</s>"
TEXT = "the cat sat on the mat and the cat ate the rat ~ the theme of then and there"


def byte_level() -> tokenizers.Tokenizer:
    """One as those of Llama 3: 256 bytes, two special tokens, and merges; it wants a BOS."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=270,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator([TEXT], trainer)
    library.post_processor = processors.TemplateProcessing(
        single=[BOS, "$A"], special_tokens=[(BOS, 0)]
    )
    library.add_tokens(["<tool>"])
    return library


def with_spaces() -> tokenizers.Tokenizer:
    """One as those of Llama 2: a space before the text, bytes for what is not in the vocabulary."""
    pieces = ["<unk>", BOS, EOS, *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "a", "c", "t", "▁a", "▁c", "at", "▁cat"]
    merges = [("▁", "a"), ("▁", "c"), ("a", "t"), ("▁c", "at")]
    library = tokenizers.Tokenizer(
        models.BPE(
            {piece: token for token, piece in enumerate(pieces)},
            merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    library.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    library.add_special_tokens(["<unk>", BOS, EOS])
    library.post_processor = processors.TemplateProcessing(
        single=[BOS, "$A"], special_tokens=[(BOS, 1)]
    )
    return library
