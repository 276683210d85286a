"""The team as a script against OpenAI's client."""

import asyncio

from openai import AsyncOpenAI
from rows import TOKENS, earned, roles, tasks, to_counters, to_lead  # noqa: F401


async def run(cells, team):
    async with (
        AsyncOpenAI(base_url=team.lead.base_url, api_key=team.lead.api_key) as lead,
        AsyncOpenAI(base_url=team.counter.base_url, api_key=team.counter.api_key) as counter,
    ):

        async def ask(client, text):
            messages = [{"role": "user", "content": text}]
            answer = await client.chat.completions.create(model="any", messages=messages, max_tokens=TOKENS)
            return answer.choices[0].message.content

        pieces = to_counters(cells, await ask(lead, to_lead(cells)))
        return earned(cells, await asyncio.gather(*(ask(counter, piece) for piece in pieces)))
