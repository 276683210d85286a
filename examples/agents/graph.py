"""The team as a LangGraph graph: the lead's node sends every piece to a counter's node."""

from operator import add
from typing import Annotated, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from rows import TOKENS, earned, roles, tasks, to_counters, to_lead  # noqa: F401


class State(TypedDict):
    cells: str
    pieces: list[str]
    answers: Annotated[list[str], add]


def model(seat):
    return ChatOpenAI(model=seat.model, base_url=seat.base_url, api_key=seat.api_key, max_tokens=TOKENS)


def run(cells, team):
    lead, counter = model(team.lead), model(team.counter)

    def plan(state):
        return {"pieces": to_counters(state["cells"], lead.invoke(to_lead(state["cells"])).content)}

    def count(state):
        return {"answers": [counter.invoke(state["piece"]).content]}

    graph = StateGraph(State)
    graph.add_node("plan", plan)
    graph.add_node("count", count)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges(
        "plan", lambda state: [Send("count", {"piece": piece}) for piece in state["pieces"]] or END
    )
    graph.add_edge("count", END)
    return earned(cells, graph.compile().invoke({"cells": cells, "pieces": [], "answers": []})["answers"])
