"""Whether prompts fit a model: its template, with and without a system role, and its context."""

import copy
import json

from coterie.checks.conformance import Patience
from coterie.checks.fits import fits
from coterie.models.load import load_model, save_model
from coterie_worlds.games.sokoban import Sokoban
from tests.test_cli import call
from tests.toys import tiny

NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
)


def found(folder, world, template: str | None = None) -> list:
    model = copy.deepcopy(tiny())  # which other tests share
    if template:
        model.tokenizer.chat_template = template
    save_model(model, folder)
    return list(fits(world, str(folder), tasks=1, max_tokens=32, watch=Patience(10, 10)))


def test_what_fits_and_what_is_too_long(tmp_path):
    brief, told = Sokoban(), Sokoban(brief=False, max_tokens=400)
    template, length = found(tmp_path / "a", brief)
    assert template.ok
    assert length.ok
    assert "the longest asks 'planner'" in length.detail
    context = load_model(str(tmp_path / "a")).net.config.max_position_embeddings
    longest = int(length.detail.split("': ")[1].split()[0])
    _, just = found(tmp_path / "e", Sokoban(max_tokens=max(4, context - 2 * longest)))
    _, over = found(tmp_path / "f", Sokoban(max_tokens=context - 20))
    assert (just.ok, over.ok) == (True, False)
    _, length = found(tmp_path / "b", told)
    assert not length.ok  # of a tiny model every letter is a token
    assert "400 for its reply" in length.detail


def test_a_template_without_a_system_role_is_told_how(tmp_path):
    template, _ = found(tmp_path / "c", Sokoban(brief=False), NO_SYSTEM)
    assert template.ok
    assert "system = 'fold'" in template.detail
    template, _ = found(tmp_path / "d", Sokoban(brief=False), "{{ raise_exception('nothing') }}")
    assert not template.ok


def test_the_command_says_so(tmp_path):
    save_model(load_model("starter-tally"), tmp_path / "model")
    code, out, _ = call("check", "tally", "--tasks", "1", "--model", str(tmp_path / "model"))
    assert code == 0
    assert "the chat template of" in out
    assert "prompts and replies fit" in out
    lines = out.splitlines()
    assert any(line.startswith("8 train tasks, played as a training step plays them") for line in lines)
    assert lines[-1].startswith("RL has a signal: ")


def test_the_command_plays_with_the_model_unless_it_may_not_load_it(tmp_path):
    save_model(load_model("starter-tally"), tmp_path / "model")
    arguments = ("check", "tally", "--tasks", "1", "--model", str(tmp_path / "model"), "--json")
    code, out, _ = call(*arguments)
    assert code == 0
    told = json.loads(out)
    assert told["ok"]
    assert (told["signal"]["tasks"], told["signal"]["kind"]) == (8, "signal")
    (tmp_path / "model" / "model.safetensors").unlink()
    for more in ((), ("--no-play",)):
        code, out, err = call(*arguments, *more)
        assert code == 0
        assert "signal" not in json.loads(out)
        assert ("no task is played, since the weights of" in err) == (not more)
