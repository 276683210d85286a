"""Agents of other people's frameworks: each looks twice with a tool, and then says that it is done."""

roles = ("lead",)
tasks = [{"number": number} for number in range(30)]


def look(place: str) -> str:
    """Looks at a place.

    Args:
        place: where to look.
    """
    return f"nothing at {place}"


def langgraph(task, team):
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    tools = [tool(look)]
    model = ChatOpenAI(model=team.lead.model, base_url=team.lead.base_url, api_key=team.lead.api_key).bind_tools(tools)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "model")
    found = graph.compile().invoke({"messages": [{"role": "user", "content": "look twice"}]})
    return float(found["messages"][-1].content == "done")


async def _agents(team, chat):
    from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=team.lead.base_url, api_key=team.lead.api_key)
    kind = OpenAIChatCompletionsModel if chat else OpenAIResponsesModel
    model = kind(model=team.lead.model, openai_client=client)
    agent = Agent(name="lead", instructions="You look.", model=model, tools=[function_tool(look)])
    return float((await Runner.run(agent, "look twice")).final_output == "done")


async def agents_chat(task, team):
    return await _agents(team, chat=True)


async def agents_responses(task, team):
    return await _agents(team, chat=False)


async def agents_named(task, team):
    """A model by its name: the environment says where it is."""
    from agents import Agent, Runner, function_tool

    agent = Agent(name="lead", model=team.lead.model, tools=[function_tool(look)])
    return float((await Runner.run(agent, "look twice")).final_output == "done")


async def autogen(task, team):
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    info = {
        "vision": False,
        "function_calling": True,
        "json_output": False,
        "family": "unknown",
        "structured_output": False,
    }
    client = OpenAIChatCompletionClient(
        model=team.lead.model, base_url=team.lead.base_url, api_key=team.lead.api_key, model_info=info
    )
    agent = AssistantAgent("lead", client, tools=[look], max_tool_iterations=3)
    return float((await agent.run(task="look twice")).messages[-1].content == "done")


async def ag2(task, team):
    from ag2 import Agent
    from ag2.config import OpenAIConfig

    config = OpenAIConfig(model=team.lead.model, base_url=team.lead.base_url, api_key=team.lead.api_key)
    agent = Agent("lead", config=config, tools=[look])
    return float((await agent.ask("look twice")).body == "done")


def litellm(task, team):
    import litellm as client

    tool = {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
        },
    }
    messages = [{"role": "user", "content": "look twice"}]
    for _ in range(3):
        answer = client.completion(
            model=f"openai/{team.lead.model}", api_base=team.lead.base_url, api_key=team.lead.api_key,
            messages=messages, tools=[tool],
        ).choices[0].message  # fmt: skip
        messages.append(answer.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": look("here")} for call in answer.tool_calls or []
        ]
    return float(answer.content == "done")


def smolagents(task, team):
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    model = OpenAIServerModel(team.lead.model, api_base=team.lead.base_url, api_key=team.lead.api_key)
    agent = ToolCallingAgent(tools=[tool(look)], model=model, max_steps=4, verbosity_level=0)
    return float(str(agent.run("look twice")) == "done")
