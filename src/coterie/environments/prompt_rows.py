"""Rows of a data set as questions for a team: which column is the question, which the answer, and who sees which.

A row has a `prompt`, a string or messages, as TRL's data sets do; or `messages` that end with an assistant's, as chat
data does; or a column that is obviously the question. `environment.columns` names columns that are not obvious.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.environments.named_rewards import COMPARED, unfit
from coterie.environments.published.data import LONGEST_REASON, Benchmark, Reader, Unfit
from coterie.environments.published.sources import Row
from coterie.errors import ConfigError, nearest
from coterie.kernel.environment import Task

SPEAKERS = ("system", "user", "assistant")
NO_COLUMNS = ("prompt", "messages", "completion", "completion_ids")
"""Columns that a reward function does not get as columns: they are given as themselves."""
OBVIOUS: Mapping[str, tuple[str, ...]] = {
    "question": ("prompt", "question", "query", "problem", "input", "instruction"),
    "answer": (
        "answer", "correct_answer", "target", "label", "output", "solution", "response", "ground_truth", "gold",
        "expected", "reference", "result",
    ),
    "pattern": ("pattern", "regex"),
}  # fmt: skip
"""Usual names of columns, which need not be set, in any case; the first that is there counts."""


@dataclass(frozen=True, slots=True)
class PromptTask(Task):
    """A row of the data as a task.

    prompt: its messages, or its string, as JSON. columns: its others, as JSON; nothing
    where a person asked. shown: a completion that the data shows, or nothing. pattern: what a reply must match.
    """

    prompt: str = "[]"
    columns: str = ""
    shown: str = ""
    pattern: str = ""

    @property
    def question(self) -> str:
        """The prompt as text: of messages, the last."""
        prompt = json.loads(self.prompt)
        return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])

    def cells(self) -> dict[str, str]:
        """Returns the columns of the row as text, by name."""
        return {name: cell_text(value) for name, value in json.loads(self.columns or "{}").items()}


@dataclass(frozen=True)
class Prompted(Reader[PromptTask]):
    """A reader of rows as prompts.

    columns: pairs of question, answer or pattern and the column's name; those that are left out are guessed.
    needs: which of them must be there besides the question. rewards: by name, which the answer must suit. keys: of
    `json`. shown: pairs of a setting and the name of a column that a role's prompt shows.
    judged_by: columns that the judge's prompt shows. roles: whose replies a prompt's text may show.
    """

    benchmarks: ClassVar[Mapping[str, Benchmark]] = {}
    columns: tuple[tuple[str, str], ...] = ()
    needs: tuple[str, ...] = ()
    rewards: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    shown: tuple[tuple[str, str], ...] = ()
    judged_by: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    def format_of(self, row: Row, where: str) -> Callable[[Row], PromptTask]:
        """Returns a function that reads rows with these columns. Raises ConfigError: they do not fit."""
        chosen = self.chosen(row, where)
        self._check_shown(row, chosen)
        return lambda row: self._read(row, chosen)

    def words(self, item: PromptTask) -> tuple[str, str]:
        """Returns no name and the words that tell rows apart: the prompt, and what else of the row is shown."""
        if not self.shown:
            return "", item.prompt
        cells = item.cells()
        return "", "\n".join([item.prompt, *(cells.get(name, "") for _, name in self.shown)])

    def content(self, item: PromptTask) -> list[Any]:
        """Returns the prompt, the columns and the shown completion: all of a row."""
        return [item.prompt, item.columns, item.shown]

    def chosen(self, row: Row, where: str) -> dict[str, str]:
        """Returns the columns of the question, the answer and the pattern. Raises ConfigError: they cannot be known."""
        its = ", ".join(row)[:LONGEST_REASON] or "none"
        chosen = dict(self.columns)
        for purpose, column in chosen.items():
            if column not in row:
                raise ConfigError(
                    f"environment.columns.{purpose} = '{column}', but the columns are {its}{nearest(column, row)}"
                )
        wishes = ("answer",) if "json" in self.rewards else ()  # with keys alone it can do without
        for purpose in ("question", *self.needs, *wishes):
            if purpose not in chosen and (column := guessed(purpose, row, set(chosen.values()))):
                chosen[purpose] = column
        if missing := [purpose for purpose in ("question", *self.needs) if purpose not in chosen]:
            free = [column for column in row if column not in chosen.values()]
            written = {**chosen, **dict(zip(missing, [*free, *["…"] * len(missing)], strict=False))}
            if written.get("question") in NO_COLUMNS:
                del written["question"]
            columns = ", ".join(
                f"{purpose} = {json.dumps(name, ensure_ascii=False)}" for purpose, name in written.items()
            )
            raise ConfigError(
                f"{where}: no column is obviously the {' or the '.join(missing)}; the columns are {its}; write "
                f"environment.columns = {{{columns}}}, with the names that are right"
            )
        return chosen

    def _check_shown(self, row: Row, chosen: Mapping[str, str]) -> None:
        """Raises ConfigError if a prompt's text shows a column that is not there, or the answer."""
        columns = [name for name in row if name not in NO_COLUMNS]
        hidden = {"answer", chosen["answer"]} if "answer" in chosen and self.rewards else set[str]()
        for setting, name in self.shown:
            if name in hidden:
                raise ConfigError(
                    f"environment.{setting}: {{{name}}} shows the answer to a role that is graded by it; take it out"
                )
            if name not in columns:
                raise _unknown(
                    setting, name, ["question", *self.roles, *(each for each in columns if each not in hidden)]
                )
        for name in self.judged_by:
            if name not in columns:
                raise _unknown("judge_prompt", name, ["question", "answer", "reply", *columns])

    def _read(self, row: Row, chosen: Mapping[str, str]) -> PromptTask:
        """Returns a row as a task. Raises Unfit: it cannot be used, and why."""
        column = chosen["question"]
        prompt, shown = _messages(row, column) if column == "messages" else _prompt(row, column)
        answer = cell_text(row[chosen["answer"]]) if "answer" in chosen and self.rewards else ""
        pattern = cell_text(row[chosen["pattern"]]) if "pattern" in chosen else ""
        for name in self.rewards:
            if name in COMPARED and (reason := unfit(name, answer, self.keys)):
                raise Unfit(f"{reason}, which reward '{name}' compares with")
        if "pattern" in self.needs:
            check_pattern(pattern)
        columns = {name: value for name, value in row.items() if name not in NO_COLUMNS}
        try:
            written = json.dumps(columns, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise Unfit(f"its columns cannot be written as JSON: {error}") from error
        name = row.get("id")
        return PromptTask(
            "" if name is None else str(name), "train", answer=answer, prompt=json.dumps(prompt), columns=written,
            shown=shown, pattern=pattern,
        )  # fmt: skip


def guessed(purpose: str, columns: Iterable[str], taken: set[str]) -> str:
    """Returns the column that is obviously the question, the answer or the pattern; "" if none is."""
    by_name = {column.strip().casefold().replace(" ", "_"): column for column in columns if column not in taken}
    if purpose == "question" and "messages" in by_name:
        return by_name["messages"]
    return next((by_name[name] for name in OBVIOUS[purpose] if name in by_name), "")


def cell_text(value: Any) -> str:
    """Returns a value of a row as text: a string as it is, nothing as "", everything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def check_pattern(pattern: str) -> None:
    """Raises Unfit, a ValueError, if a text is no regular expression."""
    if not pattern:
        raise Unfit("its pattern is empty")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise Unfit(f"its pattern is no regular expression: {error}") from error


def _unknown(setting: str, name: str, known: list[str]) -> ConfigError:
    there = ", ".join(f"{{{choice}}}" for choice in dict.fromkeys(known))[:LONGEST_REASON]
    return ConfigError(
        f"environment.{setting}: {{{name}}} names nothing{nearest(name, known)}; there are {there}; a brace itself is "
        "written twice"
    )


def _prompt(row: Row, column: str) -> tuple[str | list[dict[str, str]], str]:
    """Returns the question of a row, and the completion it shows."""
    prompt, shown = row[column], row.get("completion", "")
    if isinstance(shown, list):
        (shown,) = (turn["content"] for turn in _turns(shown, "completion"))
    if isinstance(prompt, str):
        if not prompt.strip():
            raise Unfit(f"its {column} is empty")
        return prompt, str(shown)
    return _asked(_turns(prompt, column)), str(shown)


def _messages(row: Row, column: str) -> tuple[list[dict[str, str]], str]:
    """Returns the question of a conversation, and the last words of the assistant as the completion it shows."""
    turns = _turns(row[column], column)
    if turns and turns[-1]["role"] == "assistant":
        return _asked(turns[:-1]), turns[-1]["content"]
    return _asked(turns), ""


def _asked(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    if not turns or turns[-1]["role"] != "user":
        raise Unfit("its prompt does not end with a user's message")
    return turns


def _turns(messages: Any, column: str) -> list[dict[str, str]]:
    """Returns messages of text. Raises Unfit: they are none."""
    if not isinstance(messages, list):
        raise Unfit(f"its {column} is neither text nor a list of messages")
    turns: list[dict[str, str]] = []
    for message in messages:
        speaker, content = message.get("role"), message.get("content")
        if isinstance(content, list) and all(part.get("type") == "text" for part in content):
            content = "".join(part["text"] for part in content)
        if speaker not in SPEAKERS or not isinstance(content, str):
            raise Unfit(f"its {column} has a message of {speaker!r:.40} that is no text of {', '.join(SPEAKERS)}")
        turns.append({"role": speaker, "content": content})
    return turns
