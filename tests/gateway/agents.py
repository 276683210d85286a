"""Agents as people write them, against OpenAI's client; what their teams say to them is scripted."""

import http.client
import json
import os
import signal
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import openai
from openai import OpenAI

roles = ("lead", "worker")
tasks = [{"number": number} for number in range(60)]
LOOK = {
    "type": "function",
    "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}},
}


def client(seat, **how):
    return OpenAI(base_url=seat.base_url, api_key=seat.api_key, **how)


def ask(seat, text, how=None, **keys):
    messages: Any = [{"role": "user", "content": text}] if isinstance(text, str) else text
    return client(seat, **how or {}).chat.completions.create(model=seat.model, messages=messages, **keys)


def said(seat, text, **keys):
    return ask(seat, text, **keys).choices[0].message.content


def plain(task, team):
    plan = said(team.lead, f"plan {task['number']}")
    return {"reward": 0.5, "rewards": {"lead": -0.1}, "metrics": {"length": len(said(team.worker, f"do {plan}"))}}


async def asynchronous(task, team):
    async with openai.AsyncOpenAI(base_url=team.lead.base_url, api_key=team.lead.api_key) as asks:
        answer = await asks.chat.completions.create(
            model=team.lead.model, messages=[{"role": "user", "content": "hello"}]
        )
    return float(answer.choices[0].message.content == "lead: hello")


def parallel(task, team):
    def node(number):
        time.sleep(((number * 7 + os.getpid()) % 6) / 200)
        return said(team.worker, f"node {number}")

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(node, range(6)))
    said(team.lead, " ".join(found))
    return 1


def twins(task, team):
    """Three ask the same at once, and one asks it later."""
    with ThreadPoolExecutor(3) as pool:
        found = sorted(pool.map(lambda _: said(team.worker, "which?"), range(3)))
    said(team.lead, " ".join(found))
    said(team.worker, "which?", temperature=0.5)
    said(team.worker, "which?", temperature=0.5)
    return 1


def tools(task, team):
    """Two turns with a tool, and what was said comes back."""
    messages = [{"role": "system", "content": "You look."}, {"role": "user", "content": "look twice"}]
    for _ in range(2):
        message = ask(team.lead, messages, tools=[LOOK]).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": f"seen {call.id}"} for call in message.tool_calls or []
        ]
    return float(ask(team.lead, messages, tools=[LOOK]).choices[0].finish_reason == "stop")


def responses(task, team):
    """The same by the other protocol."""
    items = [{"role": "user", "content": "look twice"}]
    tool = {"type": "function", "name": "look", "description": "Looks.", "parameters": {}, "strict": True}
    with client(team.lead) as asks:
        for _ in range(2):
            answer = asks.responses.create(model=team.lead.model, instructions="You look.", input=items, tools=[tool])
            items += [item.model_dump(exclude_none=True) for item in answer.output]
            items += [
                {"type": "function_call_output", "call_id": item.call_id, "output": f"seen {item.call_id}"}
                for item in answer.output
                if item.type == "function_call"
            ]
        last = asks.responses.create(model=team.lead.model, instructions="You look.", input=items, tools=[tool])
    return float(last.output_text == "done")


def edits(task, team):
    """What the lead said comes back changed by a letter, with other arguments, without its beginning, and as it was."""
    first = [{"role": "user", "content": "look"}]
    message = ask(team.lead, first, tools=[LOOK]).choices[0].message.model_dump(exclude_none=True)
    call = message["tool_calls"][0]
    other = {**call, "function": {**call["function"], "arguments": '{"far": true}'}}
    for words in ({**message, "content": "I loo"}, {**message, "tool_calls": [other]}, message):
        said(team.lead, [*first, words, {"role": "user", "content": "go on"}], tools=[LOOK])
    said(team.lead, [{"role": "user", "content": "look here"}, message, {"role": "user", "content": "go on"}])
    return 1


def streams(task, team):
    parts = list(ask(team.lead, "hello", stream=True, stream_options={"include_usage": True}))
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    with client(team.worker) as asks, asks.responses.stream(model=team.worker.model, input="hello") as events:
        last = events.until_done().get_final_response()
    return float(
        text == "lead: hello" and last.output_text == "worker: hello" and parts[-1].usage.completion_tokens > 0
    )


def slow(task, team):
    """A client that waits a moment, and asks three times in all."""
    how = {"timeout": 0.5, "max_retries": 2}
    if task["number"] % 2:
        parts = ask(team.lead, "hello", how, stream=True)
        return float("".join(part.choices[0].delta.content or "" for part in parts) == "lead: hello")
    return float(said(team.lead, "hello", how=how) == "lead: hello")


def leaves(task, team):
    """It does not wait for an answer, and goes on without."""
    posted(team.lead).close()
    return said(team.worker, "never mind") and 1


def abandons(task, team):
    """It does not wait for an answer, and ends."""
    posted(team.lead)
    time.sleep(0.3)
    return 1


def posted(seat, **head):
    """A request by hand: its connection."""
    place = urlsplit(seat.base_url)
    connection = http.client.HTTPConnection(place.netloc)
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
    head = {
        "Authorization": f"Bearer {seat.api_key}",
        **{name.replace("_", "-"): value for name, value in head.items()},
    }
    connection.request("POST", f"{place.path}/chat/completions", body, head)
    return connection


def again(task, team):
    """An answer that has come is asked for again, by a client that says so."""
    answers = [json.loads(posted(team.lead, **head).getresponse().read())["id"] for head in (
        {}, {"x_stainless_retry_count": "1"}, {"x_stainless_retry_count": "0"})]  # fmt: skip
    return {"reward": 1, "reason": " ".join(answers), "solved": False}


def shares(task, team):
    """The worker's own words come back to it, and the lead's, after the same beginning."""
    first = [{"role": "user", "content": "hello"}]
    for speaker in (team.worker, team.lead):
        words = [*first, {"role": "assistant", "content": said(speaker, "hello")}, {"role": "user", "content": "go on"}]
        said(team.worker, words)
    return 1


def stops(task, team):
    return float(said(team.lead, "hello", stop=["ll"]) == "lead: he")


def killed(task, team):
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    ask(team.lead, "hello")
    time.sleep(5)


def crashes(task, team):
    raise KeyError(said(team.lead, "hello"))


def hangs(task, team):
    said(team.lead, "hello")
    threading.Event().wait()


def posts(task, team):
    answer = ask(team.lead, "first")
    team.lead.reward(0.25)
    ask(team.lead, "second")
    team.lead.reward(0.5)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda text: ask(team.worker, text), ("left", "right"))
    team.worker.reward(1, first.id)
    team.worker.reward(2, second.id)
    return {"solved": bool(answer)}


def early(task, team):
    try:
        team.lead.reward(1.0)
    except HTTPError as error:
        return {"reward": 1, "reason": str(error), "metrics": {"code": error.code}}


def misnamed(task, team):
    ask(team.lead, "x")
    ask(team.worker, "x")
    try:
        team.lead.reward(1.0, "chatcmpl-worker_0")
    except HTTPError as error:
        return {"reward": 1, "metrics": {"code": error.code}}


def dated(task, team):
    said(team.lead, "hello")
    said(team.worker, f"it is {uuid.uuid4()}")
    return 1


def chance(task, team):
    """Chance that is the episode's own, and sets in order."""
    import random

    said(team.lead, f"{random.random()} {team.seed} {' '.join({'a', 'b', 'c', 'd', 'e'})}")
    said(team.worker, "go on")
    return 1


def refused(task, team):
    """Keys that are refused: each with its name."""
    keys = [
        {"n": 2}, {"logprobs": True}, {"presence_penalty": 1.0}, {"logit_bias": {"5": 1}},
        {"tools": [LOOK], "tool_choice": "required"}, {"tools": [{"type": "web_search"}]},
        {"response_format": {"type": "json_object"}},
    ]  # fmt: skip
    names = []
    for key in keys:
        try:
            ask(team.lead, "x", **key)
        except openai.BadRequestError as error:
            names.append(error.param)
    try:
        client(team.lead).responses.create(model="x", input="x", previous_response_id="resp_1")
    except openai.BadRequestError as error:
        names.append(error.param)
    said(team.lead, "x", temperature=0.3, max_tokens=3)
    return {"reward": float(names == [list(key)[-1] for key in keys] + ["previous_response_id"]), "reason": str(names)}


def demands(task, team):
    said(team.lead, "x", tools=[LOOK], tool_choice={"type": "function", "function": {"name": "look"}})
    said(team.worker, "x", response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"b": 1}}})
    return 1


def keys(task, team):
    """Whose key opens what."""
    found = []
    for base, key in (
        (team.lead.base_url, "wrong"),
        (team.lead.base_url.replace("/lead/", "/nobody/"), team.lead.api_key),
        (team.lead.base_url.replace("/e/", "/e/0"), team.lead.api_key),
        (team.lead.base_url.replace("/v1", "/v2"), team.lead.api_key),
    ):
        try:
            OpenAI(base_url=base, api_key=key).chat.completions.create(model="x", messages=[])
        except openai.APIStatusError as error:
            found.append(error.status_code)
    return {"reward": 1.0, "reason": json.dumps(found), "solved": False}


def returns(task, team):
    said(team.lead, "x")
    wrong = [None, "much", {"reward": float("inf")}, {"rewad": 1}, {"rewards": {"led": 1}}, [1], {"rewards": [1]},
             {"reward": 1, "metrics": 3}]  # fmt: skip
    return wrong[task["number"] % len(wrong)]


def long(task, team):
    try:
        said(team.lead, "x" * 10)
        said(team.lead, "x" * 1000)
    except openai.BadRequestError as error:
        return {"reward": 0.0, "reason": error.code}
