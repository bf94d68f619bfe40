from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_cache.errors import InvalidArgument
from prefix_cache.index.tokens import as_token_bytes
from router.prompts.tokenizer import ByteTokenizer, FileTokenizer

tokenizers = pytest.importorskip("tokenizers")

SPECIAL = ["<|im_start|>", "<|im_end|>", "<s>"]
CORPUS = ["the quick brown fox jumps over the lazy dog", "user assistant system hello world"] * 20


def trained(path: Path, prepend: bool = False, **flags: bool) -> Path:
    """A byte-level or a metaspace tokenizer with special tokens, that begins prompts with <s>."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    if prepend:
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first")
    else:
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    special = [tokenizers.AddedToken(name, special=True, **flags) for name in SPECIAL]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<unk>", *special],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="module", params=["byte level", "metaspace", "strips spaces"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    if request.param == "strips spaces":
        return trained(path, lstrip=True, rstrip=True)
    return trained(path, prepend=request.param == "metaspace")


texts = st.lists(
    st.sampled_from([*SPECIAL, "the fox", " ", "\n", "user", " hello ", "é🌞", "<|im", "start|>"])
).map("".join)


def test_bytes_of_text_are_tokens() -> None:
    assert (
        ByteTokenizer().chat("aé") == ByteTokenizer().prompt("aé") == as_token_bytes([97, 195, 169])
    )


@given(st.lists(texts, min_size=1, max_size=4))
def test_tokens_of_a_chat_are_those_of_the_whole_text(path: Path, turns: list[str]) -> None:
    whole = tokenizers.Tokenizer.from_file(str(path))
    tokenizer = FileTokenizer(str(path))
    text = ""
    for turn in turns:
        text += turn
        assert tokenizer.chat(text) == as_token_bytes(
            whole.encode(text, add_special_tokens=False).ids
        )


def test_a_bare_prompt_gets_the_tokens_the_model_wants_around_it(path: Path) -> None:
    whole = tokenizers.Tokenizer.from_file(str(path))
    tokens = FileTokenizer(str(path)).prompt("the fox")
    assert tokens == as_token_bytes(whole.encode("the fox").ids)
    assert tokens[:4] == whole.token_to_id("<s>").to_bytes(4, "little")


def test_what_stands_between_special_tokens_is_made_to_tokens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = FileTokenizer(str(trained(tmp_path / "tokenizer.json")))
    seen = []

    class Counting:
        def __init__(self, inner: object) -> None:
            self._inner = inner

        def encode(self, text: str, add_special_tokens: bool) -> object:
            seen.append(text)
            return self._inner.encode(text, add_special_tokens=add_special_tokens)  # type: ignore[attr-defined]

    monkeypatch.setattr(tokenizer, "_tokenizer", Counting(tokenizer._tokenizer))
    tokenizer.chat("<|im_start|>user hello<|im_end|>")
    tokenizer.chat("<|im_start|>user hello<|im_end|>\n<|im_start|>user fox<|im_end|>")
    assert seen == [
        "<|im_start|>user hello",
        "<|im_end|>",
        "<|im_end|>\n",
        "<|im_start|>user fox",
    ]


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="is no tokenizer"):
        FileTokenizer(str(tmp_path / "missing.json"))
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(InvalidArgument, match=r"bad\.json is no tokenizer"):
        FileTokenizer(str(tmp_path / "bad.json"))


def test_very_much_new_text_is_not_tokenized_at_once(tmp_path: Path) -> None:
    """It would hold up all that the router does; what was remembered of it counts the next time."""
    tokenizer = FileTokenizer(str(trained(tmp_path / "tokenizer.json")))
    turns = [f"<|im_start|>{number}" + " the fox" * 7_000 for number in range(4)]
    with pytest.raises(InvalidArgument, match="more than 131072 characters of new text"):
        tokenizer.chat("".join(turns))
    tokens = tokenizer.chat("".join(turns))
    assert tokens == b"".join(map(tokenizer.chat, turns))
    with pytest.raises(InvalidArgument):
        tokenizer.prompt("x" * 131_073)
    assert len(ByteTokenizer().prompt("x" * 131_073)) == 4 * 131_073
