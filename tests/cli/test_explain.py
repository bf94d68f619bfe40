"""``explain``: why a prompt misses, down to the token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prefix_cache import Identity
from prefix_cache.cli.explain_report import print_report
from prefix_cache.cli.prompt_options import Prompt
from prefix_cache.client import NodeClient
from prefix_cache.index import Explanation, Reason, ReasonKind
from prefix_cache.replay.conversations import read_conversations
from prefix_cache.replay.encoding import UTF8_BYTES, load_encoding
from prefix_cache.replay.last_prompt import last_prompt
from tests.cli.commands import first_line, run, running

WHO = Identity("m")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A node that has cached sixty times "x", and a chat that began at 10:15:42."""
    with running("node", "--listen", "127.0.0.1:0", "--num-blocks", "64") as node:
        address = first_line(node).removeprefix("listening on ")
        serve(address, UTF8_BYTES.encode("x" * 60))
        yield address


def serve(address: str, tokens: bytes) -> None:
    with NodeClient(address) as client:
        sequence = client.acquire(WHO, tokens)
        client.commit(sequence.id, sequence.num_tokens)
        client.release(sequence.id)


def test_numbers_are_whole_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    cached = Reason(ReasonKind.CACHED, 0, 999_984)
    rest = Reason(ReasonKind.NEVER_SEEN, 999_984, 1_000_000)
    print_report(Explanation(999_984, (cached, rest)), Prompt(b"1234" * 1_000_000))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["999,984", "999,999", "16"] in [row[:3] for row in rows]


def test_what_is_cached_on_the_host_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    cached = Reason(ReasonKind.CACHED, 0, 16)
    on_host = Reason(ReasonKind.ON_HOST, 16, 48)
    last = Reason(ReasonKind.PARTIAL_BLOCK, 48, 50)
    print_report(Explanation(48, (cached, on_host, last)), Prompt(b"1234" * 50))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["16", "47", "32"] in [row[:3] for row in rows]
    assert ["cached", "on", "the", "host"] in [row[-4:] for row in rows]


def chat(folder: Path, clock: str, tools: str = "") -> Path:
    """A chat whose system prompt has a clock in it."""
    path = folder / "chat.jsonl"
    messages = [
        {"role": "system", "content": f"It is {clock}.\nYou are a helpful assistant [of ours]."},
        {"role": "user", "content": "What can you do?"},
    ]
    path.write_text(json.dumps({"messages": messages, "tools": tools}))
    return path


def ask(address: str, *arguments: str) -> str:
    done = run("explain", "--node", address, "--model", "m", *arguments)
    assert done.stderr == ""
    assert done.returncode == 0
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


def ask_json(address: str, *arguments: str) -> Any:
    return json.loads(ask(address, "--json", *arguments))


def test_a_clock_in_the_system_prompt_is_named(address: str, tmp_path: Path) -> None:
    """F052: the same chat is sent again, 71 minutes later."""
    (conversation,) = read_conversations(chat(tmp_path, "10:15:42"))
    prompt = last_prompt(conversation, UTF8_BYTES)
    assert prompt is not None
    serve(address, prompt.tokens)

    later = chat(tmp_path, "11:26:42")
    answer = ask(address, "--messages", str(later))
    assert answer.startswith("16 of 120 tokens cached (13.3%)\ntokens: UTF-8 bytes\n")
    assert (
        "\n     0    15      16  █▎········  cached"
        "\n    16   111      96  ████████··  diverged at token 18"
        "\n   112   119       8  ▋·········  the last block is not full\n"
    ) in answer
    assert answer.endswith(
        "\nThe prompt leaves what is cached at token 18, in message 0 (system)."
        "\n  <|system|>\\nIt is 1»1:26«:42.\\nYou are a helpful assistant [of our"
        "\n  The prompt has 49 '1' there, the cache has 48 '0'."
        "\n  Only tokens 18..21 differ: from token 22 on both agree again."
    )

    assert ask_json(address, "--messages", str(later)) == {
        "prompt_tokens": 120,
        "cached_tokens": 16,
        "tokens_are": "UTF-8 bytes",
        "reasons": [
            {"kind": "cached", "start": 0, "end": 16},
            {
                "kind": "diverged",
                "start": 16,
                "end": 112,
                "position": 18,
                "prompt_token": 49,
                "cached_token": 48,
                "agrees_from": 22,
                "difference": {
                    "before": "<|system|>\nIt is 1",
                    "text": "1:26",
                    "after": ":42.\nYou are a helpful assistant [of our",
                    "prompt_token": "1",
                    "cached_token": "0",
                },
                "message": {"index": 0, "role": "system"},
            },
            {"kind": "partial_block", "start": 112, "end": 120},
        ],
    }


def test_an_answer_that_is_sent_back_without_its_reasoning_is_named(
    address: str, tmp_path: Path
) -> None:
    """F050: the template leaves out what was generated between the thinking marks."""
    path = tmp_path / "chat.jsonl"

    def write(answer: str) -> None:
        said = [("user", "Is 91 a prime?"), ("assistant", answer), ("user", "And 97?")]
        messages = [{"role": role, "content": content} for role, content in said]
        path.write_text(json.dumps({"messages": messages}))

    write("<think>91 is 7 times 13.</think>No, it is not.")
    (conversation,) = read_conversations(path)
    prompt = last_prompt(conversation, UTF8_BYTES)
    assert prompt is not None
    serve(address, prompt.tokens)

    write("No, it is not.")
    answer = ask(address, "--messages", str(path))
    assert "\n     0    31      32  " in answer
    assert "\nThe prompt leaves what is cached at token 45, in message 1 (assistant).\n" in answer
    assert "<|assistant|>\\n»N«o, it is not.<|end|>" in answer


def test_a_tokenizer_gives_the_text_of_its_tokens(address: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the extra `tokenizers` is not installed")
    path = tmp_path / "tokenizer.json"
    vocabulary = {word: 1000 + i for i, word in enumerate(["?", "it", "is", "ten", "eleven", "so"])}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}
    path.write_text(json.dumps({"model": model, "pre_tokenizer": {"type": "Whitespace"}}))
    serve(address, load_encoding(path).encode("it is ten " + "so " * 40))

    answer = ask(address, "--tokenizer", str(path), "it is eleven " + "so " * 40)
    assert "\ntokens: ids of tokenizer.json\n" in answer
    assert "\nThe prompt leaves what is cached at token 2.\n  it is»eleven«so so " in answer
    assert "\n  The prompt has 1004 'eleven' there, the cache has 1003 'ten'.\n" in answer


@pytest.mark.parametrize(
    "sign",
    [
        pytest.param("è", id="another second byte"),
        pytest.param("€", id="a first byte, of a longer character"),
    ],
)
def test_a_character_of_several_bytes_is_shown_whole(address: str, sign: str) -> None:
    serve(address, UTF8_BYTES.encode("A white café in the morning"))
    answer = ask(address, f"A white caf{sign} in the morning")
    assert f"\n  A white caf»{sign}« in the morning\n" in answer


def test_text_around_a_difference_begins_with_a_whole_character(address: str) -> None:
    """Sixty bytes of context begin in the middle of a character of four."""
    serve(address, UTF8_BYTES.encode("🙂" * 20 + "ab" + "🙂" * 20))
    answer = ask(address, "🙂" * 20 + "ac" + "🙂" * 20)
    assert f"\n  {'🙂' * 14}a»c«{'🙂' * 15}\n" in answer


def test_token_ids_have_no_text(address: str) -> None:
    ids = ",".join(["120"] * 20 + ["7"] + ["120"] * 20)
    answer = ask(address, "--tokens", ids)
    assert answer.endswith(
        "\nThe prompt leaves what is cached at token 20."
        "\n  The prompt has 7 there, the cache has 120."
    )


def test_what_a_terminal_would_act_on_is_shown_as_text(address: str) -> None:
    answer = ask(address, "x" * 20 + "\x1b[2J\u202e" + "x" * 30)
    assert "»\\x1b[2J\\u202e«xxx" in answer


def test_other_reasons_have_their_words(address: str) -> None:
    assert "  cached, but one token must be computed" in ask(address, "x" * 48)
    assert "  never seen" in ask(address, "something else altogether")
    (reason, _) = ask_json(address, "--adapter", "a", "x" * 33)["reasons"]
    assert reason == {"kind": "other_identity", "start": 0, "end": 32, "fields": ["adapter"]}
    assert "  cached under another identity: other adapter" in ask(
        address, "--adapter", "a", "x" * 33
    )


def test_across_salts_is_refused_unless_the_node_was_started_for_it(address: str) -> None:
    question = ("explain", "--across-salts", "--model", "m", "--salt", "s", "x" * 48)
    refused = run(*question, "--node", address)
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: node 'node' explains nothing across salts")

    start = ("node", "--listen", "127.0.0.1:0", "--allow-explain-across-salts")
    with running(*start) as node:
        open_address = first_line(node).removeprefix("listening on ")
        serve(open_address, UTF8_BYTES.encode("x" * 48))
        answered = run(*question, "--node", open_address)
    assert "  cached under another identity: other salt" in answered.stdout


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (2, "holds 2 conversations, expected one"),
        (0, "has no turn, expected a user or assistant message"),
    ],
)
def test_messages_are_one_conversation_with_a_turn(
    address: str, tmp_path: Path, lines: int, complaint: str
) -> None:
    path = tmp_path / "chat.jsonl"
    turn = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
    path.write_text("\n".join([turn] * lines) or json.dumps({"messages": []}))
    done = run("explain", "--node", address, "--messages", str(path))
    assert done.returncode == 2
    assert complaint in " ".join(done.stderr.split())
