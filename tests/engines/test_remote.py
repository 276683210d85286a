"""Servers: what is sent, what is tried again, what is kept, what may be spent, and what a server can do to us."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from coterie.engines import remote
from coterie.engines.answers import Answer, Answers, Cost, Spent
from coterie.engines.remote import LONGEST_ANSWER, RemoteEngine, RemotePolicy
from coterie.engines.remote_config import RemoteConfig
from coterie.engines.vllm_config import VLLMConfig
from coterie.errors import CheckpointError, ConfigError, EngineError, Unavailable
from coterie.kernel.engine import Request
from coterie.kernel.episode import ChatMessage
from coterie.kernel.front import Eager
from coterie.kernel.loops import Hosted, drive
from coterie.kernel.scene import Reply
from tests.runs import answered
from tests.servers import completion, serving

pytestmark = pytest.mark.filterwarnings("error")


def engine(url: str, folder: Path | None = None, *, counted: bool = False, **settings) -> RemoteEngine:
    policy = {key: settings.pop(key) for key in ("thinking", "system") if key in settings}
    config = RemoteConfig(url=url, **{"timeout_s": 5.0, "retries": 2, **settings})
    answers = None if folder is None else folder / "answers" / "p.jsonl"
    return RemoteEngine({"p": RemotePolicy("p", "gpt", config, answers=answers, counted=counted, **policy)})


def asked(prompt, *seeds: int, temperature=1.0, top_p=1.0, stop=(), max_tokens=8) -> Request:
    key = (str(prompt), 0, "0@0", "a")
    return Request(key, "p", "a", prompt, (1,), seeds or (0,), temperature, top_p, max_tokens, stop)


def given(made: RemoteEngine, *wave: Request) -> list:
    with Hosted(made) as hosted:
        return list(drive(hosted.generate(wave)))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr("coterie.engines.remote.random.uniform", lambda low, high: 0.01)


def test_what_is_sent_is_what_was_asked():
    with serving(lambda body, number: "yes") as server:
        ((sample,),) = given(engine(server.url, extra={"effort": "low"}),
                             asked("say it", 7, top_p=0.5, stop=("\n",), temperature=0.5))  # fmt: skip
    assert server.headers["path"] == "/v1/chat/completions"
    assert "Authorization" not in server.headers
    assert server.asked == [
        {"model": "gpt", "messages": [{"role": "user", "content": "say it"}], "max_tokens": 8, "temperature": 0.5,
         "top_p": 0.5, "seed": 7, "stop": ["\n"], "effort": "low"}
    ]  # fmt: skip
    assert (sample.text, sample.finish, sample.role, sample.policy, sample.seed) == ("yes", "stop", "a", "p", 7)
    assert sample.reply().ids == ()


def test_fields_that_a_server_does_not_take_are_left_out():
    with serving(lambda body, number: "yes") as server:
        given(engine(server.url, omit=("max_tokens", "temperature", "seed", "stop")), asked("x", 7, stop=("a",)))
    assert set(server.asked[0]) == {"model", "messages"}


def test_a_conversation_is_sent_as_text_and_own_thoughts_are_kept_or_stripped():
    own = Reply("a", "<think>hm</think>\n\nmy words", "stop", (1, 2), "p")
    other = Reply("b", "<think>aha</think>theirs", "stop", (3,), "q")
    prompt = (ChatMessage("system", "be kind"), ChatMessage("user", other), ChatMessage("assistant", own),
              ChatMessage("user", "go on"))  # fmt: skip
    with serving(lambda body, number: "yes") as server:
        given(engine(server.url), asked(prompt))
        given(engine(server.url, thinking="strip", system="fold"), asked(prompt))
    kept, stripped = ([(one["role"], one["content"]) for one in body["messages"]] for body in server.asked)
    assert kept == [("system", "be kind"), ("user", other.text), ("assistant", own.text), ("user", "go on")]
    assert stripped == [("user", f"be kind\n\n{other.text}"), ("assistant", "my words"), ("user", "go on")]


def test_equal_requests_are_asked_once_and_a_greedy_one_whatever_its_seed():
    with serving(lambda body, number: f"answer {number}") as server, Hosted(engine(server.url)) as hosted:
        wave = [asked("x", 1, 2), asked("x", 1), asked("y", 1, 2, temperature=0.0)]
        (first, second), (again,), (greedy, too) = answered(hosted, wave)
        assert (first.text, greedy.text) == (again.text, too.text)
        assert first.text != second.text
        assert answered(hosted, wave) == [(first, second), (again,), (greedy, too)]
    assert len(server.asked) == 3
    assert first.completion_ids != second.completion_ids
    assert first.prompt_ids == second.prompt_ids


def test_a_kept_answer_is_never_asked_again_and_half_a_line_is_forgotten(tmp_path):
    with serving(lambda body, number: f"answer {number}") as server:
        first = given(engine(server.url, tmp_path), asked("x", 1), asked("y", 1))
        file = tmp_path / "answers" / "p.jsonl"
        with file.open("a") as opened:
            opened.write('{"request":"half a li')
        assert given(engine(server.url, tmp_path), asked("x", 1), asked("y", 1)) == first
        assert len(server.asked) == 2
        given(engine(server.url, tmp_path), asked("z", 1))
    assert len(Answers(file).file.read_bytes().splitlines()) == 3
    assert Answers(file).cost == Cost(3, 30, 9)
    file.write_text("no json\n" + file.read_text())
    with pytest.raises(CheckpointError, match=r"p\.jsonl:1 is damaged"):
        Answers(file)


def test_its_folder_is_not_made_again_where_the_run_has_gone(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be written"):
        Answers(tmp_path / "gone" / "answers" / "p.jsonl").add(Answer("x", Cost(1), "a"))
    assert not (tmp_path / "gone").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "name"),
    [(503, "remote_503"), (429, "remote_429"), (408, "remote_408"), (9.0, "remote_timeout"),
     ((200, {"Content-Length": "999"}, b"{"), "remote_connection"), (b"<html>", "remote_answer"),
     ((200, {}, {"choices": []}), "remote_answer"), (b"x" * (LONGEST_ANSWER + 1), "remote_size"),
     (b"[" * 100_000, "remote_answer"), ((200, {}, completion("a", usage=(-5, 1))), "remote_answer"),
     ((200, {}, {"choices": [{"message": {"content": ["a"]}}]}), "remote_answer")],
)  # fmt: skip
def test_trouble_is_tried_again_and_counted_by_name(trouble, name):
    limit = 0.3 if trouble == 9.0 else 5.0
    with serving(lambda body, number: trouble if number < 3 else "at last") as server:
        made = engine(server.url, timeout_s=limit)
        with Hosted(made) as hosted:
            front = Eager(hosted)
            ((sample,),) = drive(front.ask((asked("x"),)))
    assert sample.text == "at last"
    assert front.budget.retried == {name: 2}
    assert not front.budget.dropped
    assert len(server.asked) == 3


def test_what_remains_is_a_fault_of_that_request_alone():
    with serving(lambda body, number: 500 if body["messages"][0]["content"] == "bad" else "fine") as server:
        made = engine(server.url)
        bad, (good,) = given(made, asked("bad"), asked("good"))
    assert isinstance(bad, Unavailable)
    assert bad.stage == "remote_500"
    assert good.text == "fine"
    assert len(server.asked) == 4
    assert made.tried_again == {"remote_500": 2}


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_request_that_is_refused_is_not_made_again(status):
    with serving(lambda body, number: status) as server:
        (fault,) = given(engine(server.url), asked("x"))
    assert fault.stage == f"remote_{status}"
    assert len(server.asked) == 1


def test_a_server_that_is_not_there_is_a_fault():
    with serving(lambda body, number: "yes") as server:
        url = server.url
    (fault,) = given(engine(url), asked("x"))
    assert fault.stage == "remote_connection"


@pytest.mark.slow
@pytest.mark.parametrize("status", [401, 403, 404, 307])
def test_a_key_or_an_address_that_is_wrong_ends_it_in_one_line_without_the_key(status, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    answer = (status, {"Location": "http://127.0.0.1:9/v1"}, b"who is sk-secret?\x1b[2J") if status == 307 else status
    wrong = rf"policies\.p: .* answers {status}.*key_variable"
    with serving(lambda body, number: answer) as server, pytest.raises(EngineError, match=wrong) as told:
        given(engine(server.url, key_variable="MY_KEY"), *(asked(str(number)) for number in range(50)))
    assert server.headers["Authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in str(told.value)
    assert "\x1b" not in str(told.value)
    assert len(server.asked) <= 16


def test_a_key_that_is_not_there_is_told_before_anything_is_asked(monkeypatch):
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(ConfigError, match="export MY_KEY=…"):
        given(engine("http://127.0.0.1:9/v1", key_variable="MY_KEY"), asked("x"))


def test_retry_after_is_waited_for(monkeypatch):
    slept = []
    real = time.monotonic

    def answering(body, number):
        slept.append(real())
        return (429, {"Retry-After": "1"}, b"") if number == 1 else "yes"

    with serving(answering) as server:
        given(engine(server.url), asked("x"))
    assert slept[1] - slept[0] >= 0.9
    assert len(server.asked) == 2


def test_a_long_wait_is_told_once_for_all_that_wait(monkeypatch, capfd):
    monkeypatch.setattr(remote, "LONG_WAIT_S", 0.9)

    def answering(body, number):
        return (429, {"Retry-After": "1"}, b"") if number <= 3 else "yes"

    with serving(answering) as server:
        given(engine(server.url), *(asked(str(number)) for number in range(3)))
        assert capfd.readouterr().err == f"\ncoterie: policies.p: {server.url} says 429; asking again in 1 s\n"
    with serving(lambda body, number: (503, {}, b"") if number == 1 else "yes") as server:
        given(engine(server.url), asked("x"))
    assert not capfd.readouterr().err


def test_no_more_are_under_way_than_are_allowed():
    busy, most = 0, 0
    lock = threading.Lock()

    def answering(body, number):
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.02)
        with lock:
            busy -= 1
        return "yes"

    with serving(answering) as server:
        given(engine(server.url, concurrency=3), *(asked(str(number)) for number in range(20)))
    assert most == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "answers"),
    [({"budget_calls": 7}, 7), ({"budget_tokens": 200}, 5), ({"budget_usd": 200.0, "prompt_usd": 1e6}, 6),
     ({"budget_calls": 0}, 0)],
)  # fmt: skip
def test_a_budget_is_never_passed_and_what_was_paid_for_is_kept(limit, answers, tmp_path):
    """A request's body has some 120 bytes, so that its worst is about 128 tokens; the server counts 13."""
    with serving(lambda body, number: "yes") as server:
        with pytest.raises(Spent, match=rf"policies\.p: its budget is spent: .*remote\.{next(iter(limit))} = "):
            given(engine(server.url, tmp_path, **limit), *(asked(str(number)) for number in range(30)))
        asked_first = len(server.asked)
        kept = Answers(tmp_path / "answers" / "p.jsonl")
        assert kept.cost.calls == asked_first
        config = RemoteConfig(**limit)
        usd = (kept.cost.prompt_tokens * config.prompt_usd + kept.cost.completion_tokens * config.completion_usd) / 1e6
        tokens = kept.cost.prompt_tokens + kept.cost.completion_tokens
        for spent, most in zip((kept.cost.calls, tokens, usd), (config.budget_calls, config.budget_tokens,
                                                                config.budget_usd), strict=True):  # fmt: skip
            assert most is None or spent <= most
        assert asked_first >= answers
        with pytest.raises(Spent):
            given(engine(server.url, tmp_path, counted=True, **limit), *(asked(f"more {n}") for n in range(30)))
        # what was answered before costs nothing
        known = [json.loads(line) for line in (kept.file.read_text().splitlines() if kept.file.exists() else [])]
        assert len({line["request"] for line in known}) == kept.cost.calls


def test_a_server_that_counts_nothing_is_charged_the_worst():
    with serving(lambda body, number: (200, {}, completion("yes", usage=None))) as server:
        made = engine(server.url)
        given(made, asked("x"))
    cost = made.servers["p"].answers.cost
    assert cost.completion_tokens == 8
    assert cost.prompt_tokens >= len(json.dumps(server.asked[0]["messages"]))


def test_calls_that_failed_count_and_those_without_an_end_are_charged_the_worst():
    with serving(lambda body, number: [503, b"<", "yes"][number - 1]) as server:
        made = engine(server.url)
        given(made, asked("x"))
    cost = made.servers["p"].answers.cost
    assert cost.calls == 3
    assert cost.completion_tokens == 0 + 8 + 3


@pytest.mark.slow
def test_tokens_are_those_that_the_server_counted():
    with serving(lambda body, number: "yes") as server, Hosted(engine(server.url)) as hosted:
        front = Eager(hosted)
        drive(front.ask((asked("x", 1, 2),)))
    assert (front.budget.prompt_tokens, front.budget.sampled_tokens) == (20, 6)


@pytest.mark.parametrize(
    ("said", "text", "finish"),
    [(completion(None), "", "stop"), (completion("cut", "length"), "cut", "length"),
     (completion("a\nb"), "a", "string"), (completion("\ud800 \x00"), "? \x00", "stop")],
)  # fmt: skip
def test_a_reply_is_text_up_to_a_stop_string(said, text, finish):
    with serving(lambda body, number: (200, {}, said)) as server:
        ((sample,),) = given(engine(server.url), asked("x", stop=("\n",)))
    assert (sample.text, sample.finish) == (text, finish)


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"url": "localhost:8000"}, "https://HOST/v1"), ({"url": "https://sk-1:x@host/v1"}, "never in the address"),
     ({"url": "https://host/v1?key=1"}, "never in the address"), ({"key_variable": "sk-123"}, "key_variable"),
     ({"url": "ftp://host"}, "https://HOST/v1"),
     ({"url": "http://host/v1", "key_variable": "KEY"}, "the key in KEY is sent over https alone")],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(settings, told):
    with pytest.raises(ValueError, match=told):
        RemoteConfig(**settings)


def test_a_key_goes_over_https_or_to_this_machine():
    for url in ("https://host/v1", "http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:8000/v1"):
        assert RemoteConfig(url=url, key_variable="KEY").url
        assert VLLMConfig(url=url, key_variable="KEY").url
    assert RemoteConfig(url="http://host/v1").url, "without a key"
    with pytest.raises(ValueError, match="the key in KEY is sent over https alone"):
        VLLMConfig(url="http://host:8000", key_variable="KEY")
