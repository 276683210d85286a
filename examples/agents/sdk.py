"""The team with OpenAI's Agents SDK: two agents, and its runner."""

import asyncio

from agents import Agent, ModelBehaviorError, ModelSettings, OpenAIResponsesModel, Runner
from openai import AsyncOpenAI
from rows import TOKENS, earned, roles, tasks, to_counters, to_lead  # noqa: F401


def member(seat):
    client = AsyncOpenAI(base_url=seat.base_url, api_key=seat.api_key)
    model = OpenAIResponsesModel(model=seat.model, openai_client=client)
    return Agent(name=seat.role, model=model, model_settings=ModelSettings(max_tokens=TOKENS))


async def asked(agent, words):
    try:
        return (await Runner.run(agent, words)).final_output
    except ModelBehaviorError:  # the reply was cut: the model's doing, and worth no number
        return ""


async def run(cells, team):
    lead, counter = member(team.lead), member(team.counter)
    pieces = to_counters(cells, await asked(lead, to_lead(cells)))
    answers = await asyncio.gather(*(asked(counter, piece) for piece in pieces))
    return earned(cells, answers)
