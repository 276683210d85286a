"""The command `coterie new team FILE`: it looks at a table of questions and answers and writes a team for it.

Columns, reward, form of the answer and length of replies are guessed from the first rows. The file that is written is
an ordinary config, with a comment on every line that is likely to be edited.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from string import Template

from coterie.environments.named_rewards import ALIKE, FILLERS, SPARE, as_json, choices, meaning, numbers, words
from coterie.environments.prompt_rows import Prompted, PromptTask
from coterie.environments.prompts import MOST_CHOICES
from coterie.environments.published.data import load
from coterie.environments.published.sources import Row, source_of
from coterie.errors import ConfigError
from coterie.kernel.safe import command, one_line
from coterie.report.output import say

LOOKED = 100
"""Number of rows that are looked at."""
SHORT = 5
"""Maximum words of an answer that can be given word for word."""
MOST_OPTIONS = 6
"""Maximum number of different answers that a prompt lists."""
LONGEST_OPTIONS = 120
"""Maximum characters of the answers that a prompt lists."""
MOST_TOKENS = 512
CONTAINS = f"""\
A reply earns 1 if it has all words of the answer, and at most twice as many and {SPARE} more. If the table has more
than {MOST_CHOICES} different answers, the others may only be words such as "the answer is". Long answers are seldom
given word for word. If no reply earns anything, write ["judge"] instead: a model that is not trained then says whether
a reply is right. It needs judge = "judge" under [team], [policies.judge] with kind = "frozen" (or "remote", a server)
and a model that can tell, and horizon = "turn" under [algorithm]."""
NUMERAL = re.compile(r"[-+\N{MINUS SIGN}\N{EN DASH}]?[.,]?\d[\d.,/]*(?:[eE][+-]?\d+)?")
CONTEXTS = frozenset(
    {"context", "passage", "document", "text", "article", "paragraph", "story", "background", "evidence"}
)
"""Names of columns that every role is shown above the question, in any case."""
TASKS = 8
"""Number of tasks a step, if there are as many for training."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A reward that suits a table's answers: the reason, the form that a prompt asks for, and the tokens of a reply."""

    reward: str
    reason: str
    form: str
    max_tokens: int


def new_team(data: str, out: Path) -> None:
    """Writes a team for a table.

    Raises:
        ConfigError: the table cannot be read, has no question and answer, or the file is there already.
    """
    if out.suffix != ".toml":
        raise ConfigError(f"--out {out}: a team is a TOML file; write {out.with_suffix('.toml')}")
    source = source_of(data)
    rows = [row for _, _, row in islice(source.rows(), LOOKED)]
    if out.exists():
        raise ConfigError(f"{out} exists; choose another name with --out, or remove it")
    if not rows:
        raise ConfigError(f"environment.data: {data} has no rows; write a line that names the columns, and rows below")
    reader = Prompted(needs=("answer",), rewards=("regex",))  # of the answer nothing is demanded yet
    try:
        chosen = reader.chosen(rows[0], source.place("", 1))
    except ConfigError as error:
        told = str(error).rpartition("; write environment.columns")[0]
        raise ConfigError(f"{told}; rename them to question and answer") from error
    read = reader.format_of(rows[0], source.place("", 1))
    tasks = [task for row in rows if (task := _read(read, row)) and task.answer.strip()]
    if not tasks:
        raise ConfigError(
            f"environment.data: {data}: none of the first {len(rows)} rows has a question "
            f"in '{chosen['question']}' and an answer in '{chosen['answer']}'; rename the columns that are right"
        )
    fit = fitting([task.answer for task in tasks])
    others = [column for column in rows[0] if column not in chosen.values()]
    contexts = [column for column in others if column.casefold() in CONTEXTS]
    whole = str(Path(data).resolve()) if Path(data).is_file() else data
    splits = load(
        whole,
        Prompted(
            tuple(sorted(chosen.items())), ("answer",), (fit.reward,), shown=tuple(("data", each) for each in contexts)
        ),
    ).splits
    if empty := [split for split, its in splits.items() if not its]:
        different = {(task.prompt, *(task.cells().get(each) for each in contexts)) for task in tasks}
        few = _too_few(sum(map(len, splits.values())), empty, len(tasks), len(tasks) - len(different))
        raise ConfigError(f"environment.data: {data}: {few}")
    text = Template(files("coterie.templates").joinpath("team.toml").read_text(encoding="utf-8")).substitute(
        file=one_line(Path(data).name),
        check=one_line(command("check", out)),
        train=one_line(command("train", out, "--model", "smollm2")),
        data=_string(os.path.relpath(data, out.parent) if Path(data).is_file() else data),
        asked="\n".join([*(f"{{{column}}}" for column in contexts), "{question}"]),
        question=_string(chosen["question"]),
        answer=_string(chosen["answer"]),
        reward=fit.reward,
        reason=fit.reason.replace("\n", "\n# "),
        form=_in_text(fit.form),
        looked=len(rows),
        longest=max(len(task.answer) for task in tasks),
        max_tokens=fit.max_tokens,
        tasks=min(TASKS, len(splits["train"])),
    )
    try:
        tomllib.loads(text)
        out.write_bytes(text.encode())
    except ValueError as error:
        raise ConfigError(f"environment.data: {data} cannot be written as TOML: {one_line(str(error))}") from error
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}") from error
    sizes = ", ".join(f"{len(its)} for {split}" for split, its in splits.items())
    say(f"wrote {out}: question '{chosen['question']}', answer '{chosen['answer']}', reward {fit.reward}")
    say(f"{sizes} of {data}")
    if contexts:
        say(f"each role is shown the column {' and '.join(map(repr, contexts))} above the question")
    if unseen := [column for column in others if column not in contexts]:
        say(f"nobody is shown {one_line(', '.join(map(repr, unseen)))[:200]}: {{NAME}} in a prompt shows a column")
    say(f"read and edit it, then:  {command('check', out, '--model', 'smollm2')}")
    say(f"                         {command('train', out, '--model', 'smollm2')}")


def _too_few(rows: int, empty: Sequence[str], looked: int, alike: int) -> str:
    """Returns in words why rows make no team.

    Args:
        rows: number of different ones.
        empty: splits that have none.
        looked: number of the first ones; alike: of these, those that only repeat another one's question.
    """
    few = "1 different row is" if rows == 1 else f"{rows} different rows are"
    cause = (
        f"rows with equal questions count once, and {alike} of the first {looked} repeat one: what tells them apart "
        "belongs into the question, or into a column called context"
        if alike
        else "give some dozens of rows"
    )
    return f"{few} too few: none belongs to {' and '.join(empty)}, which a row's content decides; {cause}"


def fitting(answers: Sequence[str]) -> Chosen:
    """Returns the reward that suits answers, with its reason, the form to ask for, and the tokens of a reply.

    Raises:
        ConfigError: no named reward tells two of them apart.
    """
    longest = max(map(len, answers))
    if all(map(_is_data, answers)):
        return Chosen(
            "json",
            "All answers are JSON: a reply earns 1 if it is the same data, or with json_keys the same at these keys.",
            "Answer with JSON alone.",
            _tokens(2 * longest, 32),
        )
    if _are_numbers(answers):
        return Chosen(
            "number",
            "All answers are numbers: a reply earns 1 if it holds that number and no other.",
            "Answer with one number.",
            _tokens(longest, 16),
        )
    most = max(len(words(answer)) for answer in answers)
    if most > SHORT and not _confused(answers, lambda answer: frozenset(words(answer)) - FILLERS):
        return Chosen(
            "contains",
            CONTAINS,
            f"Answer in at most {2 * most + SPARE} words.",
            _tokens(2 * longest, 32),
        )
    if pair := _confused(answers, meaning):
        raise ConfigError(
            f"environment.data: reward 'exact' does not tell the answers {pair[0]!r:.60} and {pair[1]!r:.60} apart; "
            "write them alike if they mean the same, or write a reward function: docs/rewards.md"
        )
    options = [" ".join(option.split()) for option in choices(answers, MOST_OPTIONS)]
    return Chosen(
        "exact",
        "A reply earns 1 if it is the answer; case, articles, quotes and the punctuation of a sentence do not matter.\n"
        'Where replies are sentences that hold the answer, write ["contains"] instead.',
        f"Answer with one of these: {', '.join(options)}."
        if 0 < sum(map(len, options)) <= LONGEST_OPTIONS
        else "Answer with one word."
        if most <= 1
        else f"Answer with at most {most} words.",
        _tokens(longest, 16),
    )


def _are_numbers(answers: Iterable[str]) -> bool:
    """Returns True if answers are nothing but numbers, apart from one unit that may stand at each of them."""
    pairs = {(*numbers(answer), _unit(answer)) for answer in answers}
    units = {unit for *_, unit in pairs}
    values = {tuple(value) for *value, _ in pairs}
    return None not in units and len(units - {""}) <= 1 and len(values) == len(pairs)


def _unit(answer: str) -> str | None:
    """Returns the currency sign, percent sign or word at the only number of a text, or ""; None if there is more."""
    around = [part.strip(" \t\n.") for part in NUMERAL.split(answer)]
    if len(numbers(answer)) != 1 or len(around) != 2 or all(around):
        return None
    unit = "".join(around).casefold()
    sign = len(unit) == 1 and (unit == "%" or unicodedata.category(unit) == "Sc")
    return unit if not unit or sign or around[1].isalpha() else None


def _confused(answers: Iterable[str], meant: Callable[[str], Hashable]) -> tuple[str, str] | None:
    """Returns two answers that mean the same but differ in more than case, spaces and a full stop; None if none do."""
    seen: dict[Hashable, str] = {}
    for answer in answers:
        other = seen.setdefault(meant(answer), answer)
        if _bare(other) != _bare(answer):
            return other, answer
    return None


def _bare(answer: str) -> str:
    return "".join(answer.translate(ALIKE).split()).casefold().rstrip(".")


def _read(read: Callable[[Row], PromptTask], row: Row) -> PromptTask | None:
    """Returns a row as a task; None if it is none."""
    try:
        return read(row)
    except (ValueError, KeyError, TypeError, AttributeError):  # of a stranger's row
        return None


def _is_data(answer: str) -> bool:
    """Returns True if a text is a JSON object or array."""
    try:
        return isinstance(as_json(answer), dict | list)
    except ValueError:
        return False


def _tokens(characters: int, least: int) -> int:
    """Returns the tokens that a text of so many characters may need, at three characters a token, in steps of 8."""
    return min(MOST_TOKENS, max(least, -(-(characters // 3 + 8) // 8) * 8))


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _in_text(form: str) -> str:
    """Returns a line of a prompt's text for a TOML text within three quotes, whose braces are signs."""
    return _string(form)[1:-1].replace("{", "{{").replace("}", "}}")
