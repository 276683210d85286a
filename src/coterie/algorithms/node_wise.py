"""Base class of the node-wise methods: they play a base episode and compare alternative replies at its nodes."""

from __future__ import annotations

from pydantic import Field

from coterie.algorithms.base import GroupBaseline
from coterie.kernel.environment import Task
from coterie.kernel.group import Collected
from coterie.kernel.play import Play
from coterie.sampling.node_mc import NodePlan, Nodes, node_mc


class NodeWise(GroupBaseline):
    """Groups made at nodes of base episodes by `sampling/node_mc.py`."""

    num_generations: int = Field(default=4, ge=2)
    """Number of alternative replies at a node. With `reuse_base`, the base episode's own reply is one of them."""
    bases: int = Field(default=1, ge=1)
    """Number of base episodes per task. A base episode is played once to the end. Some or all of its decisions are
    nodes: alternative replies are sampled there, and played to the end."""
    nodes: Nodes = "all"
    """Decisions of a base episode that are nodes. all: every one; uniform: `num_nodes` of the episode; per_agent:
    `num_nodes` of each role."""
    num_nodes: int = Field(default=2, ge=1)
    """Number of nodes, if `nodes` is uniform or per_agent."""
    continuations: int = Field(default=1, ge=1)
    """Number of times that each alternative is played to the end."""
    reuse_base: bool = True
    """Use the base episode's reply as one of the alternatives, and the episode itself as one of its continuations."""

    def inert(self) -> dict[str, str]:
        """Returns the number of nodes as a setting without effect if all decisions are nodes."""
        inert = {"num_nodes": "nodes = 'all' takes every decision"}
        return super().inert() | (inert if self.nodes == "all" else {})

    async def collect(self, play: Play, task: Task) -> Collected:
        """Plays base episodes of a task and returns the groups of their nodes."""
        plan = NodePlan(
            bases=self.bases,
            nodes=self.nodes,
            num_nodes=self.num_nodes,
            num_generations=self.num_generations,
            continuations=self.continuations,
            reuse_base=self.reuse_base,
            team_weight=self.team_weight,
        )
        return await node_mc(play, task, plan)
