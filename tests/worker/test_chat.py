from __future__ import annotations

import pytest

from prefix_cache.chat_template import JinjaTemplate
from prefix_cache.errors import InvalidRequest
from prefix_cache.worker.chat import ChatRenderer

TEMPLATE = """\
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}
{%- if thinking %}<think>{% endif %}"""

OWN = ChatRenderer(JinjaTemplate(TEMPLATE, {}, "a template"))
USER = {"role": "user", "content": "hi"}


def test_a_chat_is_rendered_by_the_template_of_the_model() -> None:
    assert not OWN.needs_bos
    assert OWN.render([USER]) == "[user]hi"
    assert OWN.render([USER], [{"name": "f"}]) == '[{"name": "f"}][user]hi'
    assert OWN.render([USER], options={"thinking": True}) == "[user]hi<think>"


def test_a_model_without_one_gets_the_plain_template() -> None:
    plain = ChatRenderer(None)
    assert plain.needs_bos
    assert plain.render([USER], None) == "<|user|>\nhi\n<|assistant|>\n"
    assert plain.render([USER], [1]) == "<|tools|>\n[1]\n<|user|>\nhi\n<|assistant|>\n"


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="a message is 'hi', expected an object"):
        OWN.render(["hi"])
