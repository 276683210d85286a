"""Tool calls as text: how tools are described to a model, and how calls are parsed from its replies.

The format is that of Hermes and Qwen: the system message lists functions between `<tools>` tags, and a call is between
`<tool_call>` tags. Parsing is strict; a malformed call stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coterie.kernel.scene import JSON

CALL = re.compile(r"\s*<tool_call>(.*?)</tool_call>\s*", re.DOTALL)
TOLD = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool. arguments: a JSON object."""

    id: str
    name: str
    arguments: JSON

    @property
    def text(self) -> str:
        """The call as a model writes it."""
        call = json.dumps({"name": self.name, "arguments": self.arguments}, ensure_ascii=False)
        return f"<tool_call>\n{call}\n</tool_call>"

    @property
    def written(self) -> str:
        """Arguments of the call as JSON text, as clients take them."""
        return json.dumps(self.arguments, ensure_ascii=False)


def told(tools: Sequence[JSON]) -> str:
    """Returns the text by which a model is told of its tools."""
    return TOLD.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))


def parsed(text: str, name: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Returns the text of a reply beside its calls of tools, and the calls.

    Args:
        name: of the reply; its calls are called `NAME_0`, `NAME_1`, …

    Returns:
        the text without them; all of it, and no calls, where one of them is none.
    """
    found = CALL.findall(text)
    calls = [_call(written, f"{name}_{number}") for number, written in enumerate(found)]
    if not calls or None in calls:
        return text, ()
    return CALL.sub("\n", text).strip(), tuple(call for call in calls if call)


def _call(written: str, name: str) -> ToolCall | None:
    try:
        call: Any = json.loads(written)
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not call["name"]:
        return None
    arguments = call.get("arguments", {})
    return ToolCall(name, call["name"], arguments) if isinstance(arguments, dict) and finite(arguments) else None


def finite(value: JSON) -> bool:
    """Returns True if a value is JSON as others read it, without NaN and infinities."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return False
    return True
