from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefix_cache.chat_template import (
    JinjaTemplate,
    PlainTemplate,
    read_tokenizer_config,
    special_tokens,
)
from prefix_cache.errors import InvalidArgument, InvalidRequest
from tests.router.prompts.readers import assistant, system, user

CHATML = """\
{{ bos_token }}
{%- if tools %}
    {%- for tool in tools %}
[tool]{{ tool | tojson }}
    {%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'forbidden' %}
        {{- raise_exception('no such role') }}
    {%- endif %}
    {%- if message.role == 'skipped' %}{% continue %}{% endif %}
<|im_start|>{{ message.role }}
{{ message.content | trim if thinking is not defined else 'thinking' }}
    {%- for call in message.tool_calls or [] %}
{{ call.function.arguments.place }}
    {%- endfor %}<|im_end|>
{%- endfor %}
{%- if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""


def template(folder: Path, text: str = CHATML, config: object = None) -> JinjaTemplate:
    pytest.importorskip("jinja2")
    (folder / "chat.jinja").write_text(text)
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    found = read_tokenizer_config(folder / "tokenizer_config.json")
    return JinjaTemplate.of_file(folder / "chat.jinja", special_tokens(found))


def rendered(folder: Path, *messages: Any, tools: Any = (), **options: Any) -> str:
    return template(folder, config={"bos_token": "<s>"}).render(messages, tools, options)


def test_a_chat_is_rendered_as_its_template_says(tmp_path: Path) -> None:
    assert rendered(tmp_path, system("s"), user(" hi "), assistant("yes")) == (
        "<s><|im_start|>system\ns<|im_end|><|im_start|>user\nhi<|im_end|>"
        "<|im_start|>assistant\nyes<|im_end|><|im_start|>assistant\n"
    )


def test_tools_are_json_as_models_know_it(tmp_path: Path) -> None:
    text = rendered(tmp_path, user("hi"), tools=[{"b": "<&'é>", "a": 1}])
    assert text.startswith('<s>[tool]{"b": "<&\'é>", "a": 1}<|im_start|>user')


def test_options_of_the_request_reach_the_template(tmp_path: Path) -> None:
    assert "<|im_start|>user\nthinking" in rendered(tmp_path, user("hi"), thinking=True)


def test_options_cannot_replace_the_messages(tmp_path: Path) -> None:
    assert "hi" in rendered(tmp_path, user("hi"), messages=[], add_generation_prompt=False)


def test_text_in_parts_is_joined_and_other_parts_are_refused(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "user\na\nb<|im_end|>" in rendered(tmp_path, user(parts))
    with pytest.raises(InvalidRequest, match="no text"):
        rendered(tmp_path, user([{"type": "image_url", "image_url": {"url": "data:"}}]))


def test_arguments_of_tool_calls_are_objects(tmp_path: Path) -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": '{"place": "Zürich"}'}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert "assistant\nZürich<|im_end|>" in rendered(tmp_path, user("hi"), message)
    call["function"] = {"name": "f", "arguments": "{"}
    with pytest.raises(InvalidRequest, match="arguments"):
        rendered(tmp_path, user("hi"), message)


def test_special_tokens_may_be_objects_and_may_be_missing(tmp_path: Path) -> None:
    with_object = template(tmp_path, config={"bos_token": {"content": "<B>"}, "eos_token": None})
    assert with_object.render([user("hi")], [], {}).startswith("<B><|im_start|>")
    (tmp_path / "tokenizer_config.json").unlink()
    assert template(tmp_path).render([user("hi")], [], {}).startswith("<|im_start|>")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CHATML, {"role": "forbidden", "content": ""}),
        (CHATML, "hi"),
        ("{{ messages.append(1) }}", user("hi")),
        ("{{ ''.__class__.__mro__ }}", user("hi")),
        ("{{ messages[0].content + 1 }}", user("hi")),
    ],
)
def test_what_a_template_refuses_or_must_not_do_is_refused(
    tmp_path: Path, text: str, message: Any
) -> None:
    with pytest.raises(InvalidRequest):
        template(tmp_path, text).render([message], [], {})


def test_a_file_that_is_no_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="is no chat template"):
        template(tmp_path, "{% if %}")
    with pytest.raises(InvalidArgument, match="is no chat template"):
        JinjaTemplate.of_file(tmp_path / "missing", {})
    with pytest.raises(InvalidArgument, match="cannot be read"):
        template(tmp_path, config=[])  # no object
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        template(tmp_path)


def test_the_plain_template_takes_any_part() -> None:
    text = PlainTemplate().render([user([{"type": "x"}])], [{"b": 1, "a": 2}], {})
    assert text == '<|tools|>\n[{"a":2,"b":1}]\n<|user|>\n{"type":"x"}\n<|assistant|>\n'
