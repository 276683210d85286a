"""Chat templates may be anybody's: rendered as the library does, and never for long."""

import copy
from types import SimpleNamespace

import pytest
from jinja2 import TemplateError

from coterie.errors import ConfigError
from coterie.models import templates
from coterie.models.load import turn_end
from coterie.models.rendering import Renderer
from coterie.models.templates import render
from tests.toys import tokenizer

TALK = [{"role": "system", "content": "be <brief>"}, {"role": "user", "content": "é 'x' \U0001f600"}]
HONEST = {
    "loops": "{% for m in messages %}{{ loop.index }}{{ m.role }}:{{ m.content | trim }}\n{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "json": "{{ messages | tojson }}{{ bos_token }}|{{ eos_token }}{% if tools %}t{% endif %}",
    "macro": "{% macro say(m) %}<{{ m['content'] }}>{% endmacro %}{{ say(messages[-1]) }}{{ add_generation_prompt }}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
}
BOMBS = {
    "doubles": "{% set n = namespace(s='x') %}{% for a in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "power": "{{ 10 ** (10 ** 9) }}",
    "width": "{{ '%9999999999d' % 1 }}",
    "recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
}
KINDS = {
    "refuses": "{{ raise_exception('only users') }}",
    "is no template": "{% for %}",
    "has an error": "{{ messages[0].content / 2 }}",
    "leaves the sandbox": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
}


def words(template: str):
    one = copy.copy(tokenizer())
    one.chat_template = template
    return one


@pytest.mark.parametrize("name", HONEST)
def test_a_template_is_rendered_as_the_library_does(name):
    mine = words(HONEST[name])
    for more in ({}, {"add_generation_prompt": True, "quiet": True}):
        assert render(mine, TALK, **more) == mine.apply_chat_template(TALK, tokenize=False, **more)


def test_one_that_is_known_is_rendered_here(monkeypatch):
    monkeypatch.setattr(templates, "APART", SimpleNamespace())
    assert "be <brief>" in render(tokenizer(), TALK)
    with pytest.raises(AttributeError):
        render(words(tokenizer().chat_template + " "), TALK)


@pytest.mark.parametrize("name", BOMBS)
def test_one_that_never_ends_or_allocates_is_refused(name):
    mine = words(BOMBS[name])
    with pytest.raises(
        ConfigError, match=r"the chat template of policy 'p' refuses .*: it takes more than (1 s|200 MB)"
    ):
        Renderer(mine, "p")("x")
    assert turn_end(mine) is None
    assert render(words(HONEST["loops"]), TALK)


def test_one_that_writes_much_more_than_it_is_given_is_refused():
    with pytest.raises(TemplateError, match=r"it makes 300,\d+ characters of "):
        render(words("{{ messages[0].content }}{{ 'x' * 300000 }}"), TALK)
    long = [{"role": "user", "content": "y" * 400_000}]
    assert render(words("{{ messages[0].content }}"), long) == "y" * 400_000


@pytest.mark.parametrize("name", KINDS)
def test_one_that_fails_is_told_by_its_reason(name):
    with pytest.raises(TemplateError):
        render(words(KINDS[name]), TALK)


def test_of_several_templates_the_usual_one_is_meant():
    one = words({"default": "a{{ messages[-1].content }}", "tool_use": "b"})
    assert render(one, TALK) == "aé 'x' \U0001f600"
    with pytest.raises(TemplateError):
        render(words({"tool_use": "b"}), TALK)
