"""A team behind an endpoint: OpenAI's own client gets what evaluation gets, and nobody else gets anything."""

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

import openai
import pytest
import uvicorn

from coterie import load, load_config, train
from coterie.errors import ConfigError, Unavailable
from coterie.kernel.episode import Asked
from coterie.learning.policy import Policy
from coterie.protocol.chat import TOOLS, UNDONE, RequestRefused, read
from coterie.protocol.listening import listen, serving
from coterie.serving.app import Endpoint
from coterie.serving.desk import MESSAGE, Desk

KEY = "the-key"
TASKS = 4


@dataclass
class Served:
    desk: Desk
    loaded: object
    url: str
    told: list[str]
    client: openai.OpenAI

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection(self.url.removeprefix("http://").removesuffix("/v1"))
        with closing(connection):
            connection.request("POST" if body else "GET", path, body or None, headers)
            answer = connection.getresponse()
            return (
                answer.status,
                {name.lower(): value for name, value in answer.headers.items()},
                answer.read().decode(),
            )


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    sets = ["train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=4", "train.mute_every=0"]
    run = train(load_config("maths", sets), tmp_path_factory.mktemp("serving") / "run")
    loaded = load(run)
    loaded.models.engine.open()
    desk, place, told = Desk(loaded), listen("127.0.0.1", 0), []
    server = uvicorn.Server(serving(Endpoint(desk, KEY, tell=told.append).app()))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place.socket]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    with openai.OpenAI(base_url=f"{place.url}/v1", api_key=KEY, max_retries=0) as client:
        yield Served(desk, loaded, f"{place.url}/v1", told, client)
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def evaluated(served):
    """Greedy episodes of test tasks: prompts with what was said to them, questions with the team's answers."""
    world = served.loaded.config.environment
    said, answers = [], []
    for index in range(TASKS):
        log = served.loaded.play("test", index)
        points = [event for event in log.events if isinstance(event, Asked)]
        for point, reply in log.replies():
            said.append((reply.role, points[point].prompts[reply.role], reply.text))
        task = world.task("test", index)
        answers.append((task.query, world.answer(task, log)))
    return said, answers


def ask(client, model: str, text: str, **more):
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **more)


@pytest.mark.slow
def test_each_role_and_the_team_say_what_they_say_in_an_evaluation(served, evaluated):
    said, answers = evaluated
    assert [model.id for model in served.client.models.list()] == ["team", "team.reasoner", "team.tool"]
    assert served.client.models.retrieve("team.tool").owned_by == "coterie"
    for role, prompt, text in said:
        answer = ask(served.client, f"team.{role}", prompt)
        assert (answer.choices[0].message.content, answer.choices[0].message.role) == (text, "assistant")
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 2
    for query, text in answers:
        answer = ask(served.client, "team", query)
        assert answer.choices[0].message.content == text
        assert answer.choices[0].finish_reason == "stop"


def test_a_stream_says_the_same_and_how_it_ended(served, evaluated):
    role, prompt, text = evaluated[0][0]
    chunks = list(ask(served.client, f"team.{role}", prompt, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] in ("stop", "length")
    assert chunks[-1].usage.completion_tokens > 0
    query, answer = evaluated[1][0]
    chunks = ask(served.client, "team", query, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer


def test_an_error_in_a_stream_is_no_success(served):
    with pytest.raises(openai.APIError, match="no model"):
        list(ask(served.client, "team.nobody", "x", stream=True))


@pytest.mark.slow
def test_thirty_two_clients_at_once_get_what_each_gets_alone(served, evaluated):
    said, answers = evaluated
    asked = [(f"team.{role}", prompt, text) for role, prompt, text in said] + [("team", *each) for each in answers]
    asked = (asked * 32)[:32]

    async def all_at_once():
        async with openai.AsyncOpenAI(base_url=served.url, api_key=KEY, max_retries=0) as client:
            return await asyncio.gather(*(ask(client, model, prompt) for model, prompt, _ in asked))

    given = asyncio.run(all_at_once())
    assert [answer.choices[0].message.content for answer in given] == [text for *_, text in asked]


def drawn_at(served: Served, model: str, prompt: str, seed: int) -> str:
    return ask(served.client, model, prompt, temperature=2.0, seed=seed).choices[0].message.content


def test_what_a_client_sets_is_what_is_done(served, evaluated):
    role, prompt, text = evaluated[0][0]
    short = ask(served.client, f"team.{role}", prompt, max_tokens=1)
    assert (short.usage.completion_tokens, short.choices[0].finish_reason) == (1, "length")
    assert ask(served.client, f"team.{role}", prompt, max_completion_tokens=1).usage.completion_tokens == 1
    drawn = {
        ask(served.client, f"team.{role}", prompt, temperature=2.0, seed=seed).choices[0].message.content
        for seed in range(6)
    }
    assert len(drawn) > 1
    again = [
        ask(served.client, f"team.{role}", prompt, temperature=2.0, seed=3).choices[0].message.content for _ in range(2)
    ]
    assert again[0] == again[1]
    cut = ask(served.client, f"team.{role}", prompt, stop=[text[1]])
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == (text[:1], "stop")
    parts = served.client.chat.completions.create(
        model=f"team.{role}",
        messages=[{"role": "user", "content": [{"type": "text", "text": prompt}]}],
        user="me",
        store=False,
    )
    assert parts.choices[0].message.content == text


@pytest.mark.parametrize(
    ("key", "headers", "status"),
    [
        ("other", {}, 401),
        ("", {}, 401),
        (KEY, {"host": "evil.example"}, 403),
        (KEY, {"host": "127.0.0.1.evil.example:80"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/elsewhere"])
def test_who_may_not_ask_gets_nothing(served, key, headers, status, path):
    code, told, said = served.post(path, b"{}" if "chat" in path else b"", authorization=f"Bearer {key}", **headers)
    assert code == status
    assert "access-control-allow-origin" not in told
    assert KEY not in said


def test_it_listens_on_this_machine_alone_unless_told_otherwise(served):
    assert served.url.startswith("http://127.0.0.1:")
    for host, anywhere in (("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)):
        place = listen(host, 0)
        with place.socket:
            assert place.anywhere == anywhere
            with pytest.raises(ConfigError, match="in use; choose another, or --port 0"):
                listen(host, place.socket.getsockname()[1])


@pytest.mark.parametrize("key", UNDONE | TOOLS)
def test_what_would_change_the_meaning_is_refused_by_name(served, key):
    for value in (UNDONE | TOOLS)[key]:
        read(json.dumps({"model": "team", "messages": [{"role": "user", "content": "x"}], key: value}).encode())
    with pytest.raises(openai.BadRequestError) as caught:
        ask(served.client, "team", "x", extra_body={key: 2 if key != "audio" else {}})
    assert (caught.value.param, caught.value.code) == (key, "unsupported")
    assert caught.value.response.headers["x-should-retry"] == "false"


def body(**keys) -> bytes:
    return json.dumps({"model": "team.tool", "messages": [{"role": "user", "content": "x"}], **keys}).encode()


def said_by(role: object, content: object) -> bytes:
    return body(messages=[{"role": role, "content": content}])


WRONG = [
    *(b"", b"[]", b"{", b"null", b"[" * 100_000, b'{"model": 1}', b'{"model": "team"}'),
    *(body(messages=messages) for messages in ([], [1], {}, "x")),
    *(said_by("king", "x"), said_by("user", 3), said_by("user", [{"type": "image_url"}]), said_by("tool", "x")),
    *(body(model="team", messages=[{"role": "user", "content": text}] * count) for text, count in (("x", 2), (" ", 1))),
    *(body(temperature=value) for value in (-1, "hot", 1e999)),
    *(body(max_tokens=value) for value in (0, True, 1 << 70)),
    *(body(stop=value) for value in ("", [1], ["a"] * 17)),
    *(body(top_p=2), body(seed="x"), body(stream="yes"), body(stream_options=[])),
    *(body(model="team", **{key: value}) for key, value in (("max_tokens", 5), ("seed", 1), ("stop", "x"))),
]


@pytest.mark.parametrize("sent", WRONG, ids=range(len(WRONG)))
def test_what_is_no_request_is_refused_in_one_line(served, sent):
    code, _, text = served.post("/v1/chat/completions", sent or b" ", authorization=f"Bearer {KEY}")
    said = json.loads(text)["error"]
    assert code == 400, said
    assert "\n" not in said["message"]
    assert said["type"] == "invalid_request_error"


def test_what_is_too_long_is_refused_and_what_is_elsewhere_is_named(served):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(served.client, "team.tool", "x " * 5000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.APIStatusError, match="more than 2,000,000 bytes") as caught:
        ask(served.client, "team.tool", "x" * 2_000_000)
    assert caught.value.status_code == 413
    with pytest.raises(openai.NotFoundError, match="POST /v1/chat/completions"):
        served.client.embeddings.create(model="team", input="x")
    with pytest.raises(openai.NotFoundError, match=r"there are team, team\.reasoner"):
        served.client.models.retrieve("gpt-5")


def test_an_engine_that_fails_is_asked_again_and_then_told(served, monkeypatch):
    async def fails(requests):
        raise Unavailable("engine", "gone")

    monkeypatch.setattr(served.loaded.models.engine.engine, "generate", fails)
    with pytest.raises(openai.InternalServerError) as caught:
        ask(served.client, "team.tool", "x")
    assert (caught.value.status_code, caught.value.response.headers["x-should-retry"]) == (503, "true")
    with pytest.raises(openai.InternalServerError):
        ask(served.client, "team", "What is 1 + 1?")
    monkeypatch.undo()
    assert ask(served.client, "team.tool", "x").choices


def test_what_goes_wrong_in_play_says_nothing_of_this_machine_to_a_client(served, monkeypatch):
    def broken(self, scene, task, reply):
        raise RuntimeError("of no interest")

    monkeypatch.setattr(type(served.loaded.config.environment), "_judged", broken)
    with pytest.raises(openai.InternalServerError, match="its log says why") as caught:
        ask(served.client, "team", "What is 1 + 1?")
    assert ".py" not in str(caught.value)
    assert "RuntimeError: of no interest" in served.told[-1]
    monkeypatch.undo()
    with pytest.raises(openai.BadRequestError) as caught:
        ask(served.client, "team", "1 + " * 5000)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")


def test_a_bug_is_told_here_and_not_there(served, monkeypatch):
    monkeypatch.setattr(Desk, "answer", lambda self, chat: 1 / 0)
    with pytest.raises(openai.InternalServerError, match="its log says why") as caught:
        ask(served.client, "team", "x")
    assert "division" not in str(caught.value)
    assert served.told[-1] == "ZeroDivisionError: division by zero"
    assert caught.value.response.headers["connection"] == "close", "or the next request would be lost in it"
    with pytest.raises(openai.APIError, match="its log says why"):
        list(ask(served.client, "team", "x", stream=True))


def test_a_client_that_leaves_is_none_of_anothers_business(served, evaluated):
    role, prompt, text = evaluated[0][0]
    with pytest.raises(openai.APITimeoutError):
        ask(served.client.with_options(timeout=0.001), f"team.{role}", prompt)
    assert ask(served.client, f"team.{role}", prompt).choices[0].message.content == text


def test_what_a_client_that_left_had_asked_is_not_answered(served, monkeypatch):
    """It waits while the engine answers somebody else, and is never asked of the engine."""
    begun, go_on, asked = threading.Event(), threading.Event(), []
    generate = served.loaded.models.engine.generate

    async def slow(requests):
        asked.extend(request.prompt for request in requests)
        begun.set()
        await asyncio.to_thread(go_on.wait)
        return await generate(requests)

    monkeypatch.setattr(served.loaded.models.engine, "generate", slow)
    role = next(iter(served.loaded.config.team.roles))
    first = threading.Thread(target=lambda: ask(served.client, f"team.{role}", "I stay"))
    first.start()
    assert begun.wait(20)
    with pytest.raises(openai.APITimeoutError):
        ask(served.client.with_options(timeout=0.5), f"team.{role}", "I leave")
    time.sleep(0.2)  # until its leaving has arrived
    go_on.set()
    first.join()
    assert ask(served.client, f"team.{role}", "I come").choices
    assert ["I leave" in str(prompt) for prompt in asked] == [False, False]


def test_a_text_that_cannot_fit_is_refused_before_its_tokens_are_counted(served, monkeypatch):
    monkeypatch.setattr(served.loaded.models.engine, "render", lambda *_: pytest.fail("it is read"))
    for model in ("team", "team.tool"):
        with pytest.raises(openai.BadRequestError, match=r"200,016 characters, and .* are read") as caught:
            ask(served.client, model, "x" * 200_000)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
    empty = body(messages=[{"role": "user", "content": ""}] * 30_000)
    code, _, text = served.post("/v1/chat/completions", empty, authorization=f"Bearer {KEY}")
    assert (code, "480,000 characters, and " in text) == (400, True)


def test_nobody_waits_for_a_long_prompt_of_another(served, evaluated, monkeypatch):
    role, prompt, text = evaluated[0][0]
    begun, go_on = threading.Event(), threading.Event()
    render, whole = Policy.render, "long " * len(prompt)

    def slow(self, given, role):
        if "long long" in str(given):
            begun.set()
            assert go_on.wait(20)
        return render(self, given, role)

    monkeypatch.setattr(Policy, "render", slow)
    monkeypatch.setattr("coterie.serving.desk.LONG", len(prompt) + MESSAGE)
    given = []
    first = threading.Thread(target=lambda: given.append(ask(served.client, f"team.{role}", whole)))
    first.start()
    assert begun.wait(20)
    assert ask(served.client, f"team.{role}", prompt).choices[0].message.content == text
    assert not given
    go_on.set()
    first.join()
    monkeypatch.setattr("coterie.serving.desk.LONG", 10**9)
    assert ask(served.client, f"team.{role}", whole).choices[0].message.content == given[0].choices[0].message.content


@pytest.mark.parametrize("sent", [b"", b"GET /v1/models HTTP/1.1\r\nHost: x"])
def test_a_connection_without_a_request_is_closed(served, sent, monkeypatch):
    monkeypatch.setattr("coterie.protocol.listening.HEADERS_S", 0.2)
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        connection.sendall(sent)
        assert connection.recv(100) == b""


def test_a_connection_whose_answer_takes_long_is_kept(served, evaluated, monkeypatch):
    monkeypatch.setattr("coterie.protocol.listening.HEADERS_S", 0.2)
    generate = served.loaded.models.engine.generate

    async def slow(requests):
        await asyncio.sleep(0.6)
        return await generate(requests)

    monkeypatch.setattr(served.loaded.models.engine, "generate", slow)
    role, prompt, text = evaluated[0][0]
    assert ask(served.client, f"team.{role}", prompt).choices[0].message.content == text


def test_a_body_that_does_not_come_is_refused(served, monkeypatch):
    monkeypatch.setattr("coterie.protocol.http.BODY_S", 0.2)
    address = urlsplit(served.url)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_a_refusal_keeps_its_words():
    assert RequestRefused("why", code="c", param="p").body() == {
        "error": {"message": "why", "type": "invalid_request_error", "param": "p", "code": "c"}
    }
