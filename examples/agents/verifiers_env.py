"""The team as an environment of verifiers, which it plays itself. It needs verifiers, and uv for its harness."""

import asyncio

import verifiers.v1 as vf
from rows import TOKENS, earned, roles, tasks, to_counters, to_lead

SEAT = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"}, sampling={"max_tokens": TOKENS})


class RowData(vf.TaskData):
    cells: str


class RowTask(vf.Task[RowData]):
    pass


class Rows(vf.Taskset[RowTask, vf.TasksetConfig]):
    def load(self):
        return [RowTask(RowData(cells=cells)) for cells in tasks("train")]


class RowsConfig(vf.EnvConfig):
    lead: vf.AgentConfig = SEAT
    counter: vf.AgentConfig = SEAT


class RowsEnv(vf.Env[RowsConfig]):
    async def run(self, task, agents):
        lead = await agents.lead.run(task.with_data(prompt=to_lead(task.data.cells)))
        pieces = to_counters(task.data.cells, lead.last_reply)
        counts = await asyncio.gather(*(agents.counter.run(task.with_data(prompt=piece)) for piece in pieces))
        result = earned(task.data.cells, [count.last_reply for count in counts])
        lead.record_reward("right", result["reward"])
        lead.record_reward("cost", result["rewards"]["lead"])


__all__ = ["Rows", "RowsEnv"]


async def run(cells, team):
    """For the gateway: each agent of the environment asks its role of the team."""
    seats = {
        role: {
            "model": team[role].model,
            "client": {
                "type": "eval",
                "base_url": team[role].base_url,
                "api_key_var": f"COTERIE_{role.upper()}_API_KEY",
            },
        }
        for role in roles
    }
    at_once = {"max_concurrent_agents": None}  # one after the other unless told
    env = RowsEnv(RowsConfig.model_validate({"taskset": {"id": __name__}, **at_once, **seats}))
    async with env.serving():
        played = await env.run_episode(RowTask(RowData(cells=cells)), vf.ModelContext("any", vf.EvalClientConfig()))
    if not played.ok:
        raise RuntimeError(played.last_error or [trace.errors for trace in played.traces])
    earned_by_lead = played.traces[0].rewards
    return {"reward": earned_by_lead["right"].score, "rewards": {"lead": earned_by_lead["cost"].score}}
