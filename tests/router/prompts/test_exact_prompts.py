"""Prompts of a pool whose tokenizer is known: the engine's own tokens, and their chain."""

from __future__ import annotations

import logging

import pytest

from prefix_cache.index import Identity
from prefix_cache.index.block_hash import BlockHasher
from prefix_cache.plain_template import utf8_tokens
from router.claims.node_claims import NodeClaims
from router.claims.sent_text import SentText
from router.claims.text_tree import TextTree
from router.config import NodeSpec, PoolConfig
from router.prompts import BodyReader
from router.turn import Prompt
from tests.router.prompts.readers import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    RESPONSES,
    assistant,
    dispatcher,
    read,
    user,
)

LONG = "word " * 20


def exact_reader(
    *, block_size: int = 16, chat_template: str = "plain", **config: str
) -> BodyReader:
    """A reader for a pool of one node, which has said its block size."""
    fleet = dispatcher(
        PoolConfig(
            nodes=(NodeSpec("a", "127.0.0.1:1"),),
            tokenizer="bytes",
            chat_template=chat_template,
            **config,  # type: ignore[arg-type]
        )
    )
    claims = NodeClaims(SentText("a", 100, TextTree()))
    claims.block_size = block_size
    fleet.node("a").claims = claims
    return BodyReader(fleet.pools)


def prompt(body: object, path: str = CHAT, **config: str) -> Prompt:
    return read(body, path, by=exact_reader(**config)).prompt  # type: ignore[arg-type]


def chain(text: str, who: Identity) -> list[bytes]:
    hasher = BlockHasher(16, None)
    tokens = utf8_tokens(text)[: len(text) // 16 * 64]
    return list(hasher.split(hasher.chain(hasher.root(who), tokens, {})))


def test_a_chat_has_the_chain_of_its_rendered_tokens() -> None:
    text = f"<|user|>\n{LONG}\n<|assistant|>\n"
    of_chat = prompt({"messages": [user(LONG)]})
    assert of_chat.num_tokens == len(text)
    assert of_chat.block_size == 16
    assert of_chat.block_hashes == chain(text, Identity("m"))
    assert of_chat.text[16:].startswith(b'[{"role": "user"')


def test_the_pool_says_whose_kv_it_is_and_the_body_its_salt() -> None:
    text = f"<|user|>\n{LONG}\n<|assistant|>\n"
    who = Identity("llama", revision="r", kv_dtype="fp8", salt="s")
    config = {"model_identity": "llama", "revision": "r", "kv_dtype": "fp8"}
    body = {"messages": [user(LONG)], "cache_salt": "s"}
    assert prompt(body, **config).block_hashes == chain(text, who)


def test_prompts_responses_and_token_ids_have_chains_too() -> None:
    assert prompt({"prompt": LONG}, COMPLETIONS).block_hashes == chain(LONG, Identity("m"))
    ids = {"prompt": list(LONG.encode())}
    assert prompt(ids, COMPLETIONS).block_hashes == chain(LONG, Identity("m"))
    text = f"<|system|>\nbe brief\n<|user|>\n{LONG}\n<|assistant|>\n"
    body = {"instructions": "be brief", "input": LONG}
    assert prompt(body, RESPONSES).block_hashes == chain(text, Identity("m"))
    body = {"instructions": "be brief", "input": [user(LONG)]}  # type: ignore[dict-item]
    assert prompt(body, RESPONSES).block_hashes == chain(text, Identity("m"))


def test_a_later_turn_extends_the_chain() -> None:
    by = exact_reader()
    first = read({"messages": [user(LONG)]}, by=by).prompt.block_hashes
    turns = [user(LONG), assistant("hello"), user(LONG)]
    second = read({"messages": turns}, by=by).prompt.block_hashes
    assert list(second[: len(first)]) == list(first)
    assert len(second) > len(first)


def test_blocks_behind_other_blocks_are_other_blocks() -> None:
    """F031: of B followed by A, who holds B has the first part, and who holds A has nothing."""
    of_a, of_b, of_b_then_a = (
        prompt({"prompt": text}, COMPLETIONS).block_hashes
        for text in ("a" * 64, "b" * 64, "b" * 64 + "a" * 64)
    )
    assert (len(of_b), len(of_b_then_a)) == (4, 8)
    assert list(of_b_then_a[:4]) == list(of_b)
    assert not set(of_b_then_a) & set(of_a)


def test_until_a_node_has_said_its_block_size_there_are_tokens_but_no_chain() -> None:
    by = exact_reader(block_size=0)
    of_chat = read({"messages": [user("hi")]}, by=by).prompt
    assert (of_chat.num_tokens, of_chat.block_hashes) == (26, ())
    assert of_chat.is_hashable


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"prompt": ["one", "two"]}, COMPLETIONS),
        ({"messages": [{"content": "no role"}]}, CHAT),
        (b'{"model": "m", "messages": [{"role": "user", "content": "\xff"}]}', CHAT),
        (b'{"model": "m", "messages": [{"role": "user"}], "chat_template_kwargs": 7}', CHAT),
    ],
)
def test_what_cannot_be_tokenized_is_known_by_its_text_and_counted(
    body: object, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    by = exact_reader()
    caplog.set_level(logging.WARNING)
    for _ in range(3):
        of_body = read(body, path, by=by).prompt
        assert of_body.text
        assert not of_body.block_hashes
    assert by.not_tokenized == 3
    assert caplog.text.count("known by its text only") == 1


@pytest.mark.parametrize(
    "option",
    [
        {"chat_template": "{{ messages }}"},
        {"reasoning_effort": "high"},
        {"documents": [{"text": "d"}]},
        {"add_generation_prompt": False},
        {"continue_final_message": True},
        {"truncate_prompt_tokens": 10},
        {"tool_choice": "none"},
    ],
)
def test_what_only_the_engine_can_render_is_known_by_its_text_and_counted(
    option: dict[str, object],
) -> None:
    by = exact_reader()
    of_body = read({"messages": [user(LONG)], **option}, by=by).prompt
    assert of_body.text
    assert not of_body.block_hashes
    assert by.not_tokenized == 1


def test_options_that_say_what_is_so_anyway_are_rendered() -> None:
    usual = {"tool_choice": "auto", "add_generation_prompt": True, "reasoning_effort": None}
    assert prompt({"messages": [user(LONG)], **usual}).block_hashes
    # These two change what an engine does with the prompt, and not the prompt.
    others = {"response_format": {"type": "json_object"}, "mm_processor_kwargs": {"fps": 1}}
    assert prompt({"messages": [user(LONG)], **others}).block_hashes


def test_without_a_template_chats_are_known_by_text_and_prompts_by_tokens() -> None:
    by = exact_reader(chat_template="")
    assert not read({"messages": [user(LONG)]}, by=by).prompt.block_hashes
    assert read({"prompt": LONG}, COMPLETIONS, by=by).prompt.block_hashes


def test_what_is_routed_by_load_is_not_counted_as_untokenized() -> None:
    by = exact_reader()
    assert not read({"input": "hi"}, EMBEDDINGS, by=by).prompt.is_hashable
    assert by.not_tokenized == 0
