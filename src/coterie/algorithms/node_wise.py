"""What the node-wise methods share: a base episode, alternatives at its nodes, and credit among them."""

from __future__ import annotations

from pydantic import Field

from coterie.algorithms.base import GroupBaseline
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected
from coterie.kernel.play import Play
from coterie.sampling.node_mc import Nodes, Plan, node_mc


class NodeWise(GroupBaseline):
    """Groups made at nodes of base episodes by `sampling/node_mc.py`."""

    num_generations: int = Field(default=4, ge=2)
    """Alternatives at a node, the base's own among them where `reuse_base`."""
    bases: int = Field(default=1, ge=1)
    """Base episodes of a task."""
    nodes: Nodes = "all"
    """all: every decision of a base; uniform: so many of the episode; per_agent: so many of each role."""
    num_nodes: int = Field(default=2, ge=1)
    """How many decisions are nodes, where not all are."""
    continuations: int = Field(default=1, ge=1)
    """Times that each alternative is played to the end."""
    reuse_base: bool = True
    """The base's reply is an alternative and its episode a continuation: one more draw, already paid."""

    def inert(self) -> dict[str, str]:
        """A number of nodes has no effect where all are taken."""
        inert = {"num_nodes": "nodes = 'all' takes every decision"}
        return super().inert() | (inert if self.nodes == "all" else {})

    async def collect(self, play: Play, task: Task) -> Collected:
        """The groups of a task's nodes."""
        plan = Plan(
            bases=self.bases,
            nodes=self.nodes,
            num_nodes=self.num_nodes,
            num_generations=self.num_generations,
            continuations=self.continuations,
            reuse_base=self.reuse_base,
            team_weight=self.team_weight,
        )
        return await node_mc(play, task, plan)
