"""The drawn figures of the docs: python -m tests.pictures FOLDER, by `make pictures`.

Nothing in them is made up: an environment's picture is an episode that its demonstrations play, an algorithm's are the
groups that it samples of a toy.
"""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from random import Random

from coterie.config.resolve import load_environment
from coterie.engines.scripted import ScriptedEngine
from coterie.kernel.algorithm import Algorithm
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import Environment
from coterie.kernel.episode import text_of
from coterie.kernel.group import Collected, Group
from coterie.kernel.loops import drive
from coterie.kernel.play import Play
from coterie.kernel.scene import Reply, role_of
from coterie.kernel.team import Team
from coterie.registry import TABLES, find
from coterie.report.charts import COLORS
from coterie.report.conversation import Part, conversation
from tests.toys import Sequential, Simultaneous

WIDTH = 760
STYLE = (
    "<style>.paper{fill:#fff}text{fill:#1c2230}.soft{fill:#566072}.card{fill:#f4f5f8;stroke:#d8dce4}"
    ".line{stroke:#8a93a3}.arrow{fill:#8a93a3}@media (prefers-color-scheme:dark){.paper{fill:#14171d}text{fill:#e8eaf0}"
    ".soft{fill:#a7afbe}.card{fill:#1d222b;stroke:#38404d}}</style>"
)
DRAWN = (
    "plan_path",
    "sokoban",
    "sudoku",
    "maths",
    "writing",
    "code",
    "code_pair",
    "assistants",
    "desks",
    "tally",
    "relay",
    "errand",
    "documents",
    "taboo",
)
"""Environments whose demonstrations play an episode."""
UNTAUGHT: Mapping[str, Mapping[str, object]] = {"taboo": {"examples": 0}}
"""Settings with which an environment is drawn, where they are not its own."""
SAYS, LINES, PARTS = 46, 7, 5
"""Characters of a line, lines of a box, and decisions of an episode that a picture shows."""


@dataclass
class Canvas:
    """What is drawn, from the top."""

    width: int = WIDTH
    height: int = 0
    drawn: list[str] = field(default_factory=list)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        kind: str = "",
        size: int = 13,
        bold: bool = False,
        mono: bool = False,
        anchor: str = "start",
        fill: str = "",
    ) -> None:
        face = "ui-monospace, monospace" if mono else "system-ui, sans-serif"
        weight = ' font-weight="600"' if bold else ""
        paint = f' style="fill:{fill}"' if fill else ""
        self.drawn.append(
            f'<text x="{x:g}" y="{y:g}" class="{kind}" font-size="{size}" font-family="{face}" text-anchor="{anchor}"'
            f'{weight}{paint} xml:space="preserve">{escape(words)}</text>'
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        kind: str = "card",
        stroke: str = "",
        fill: str = "",
        dashed: bool = False,
    ) -> None:
        paint = "".join([f"stroke:{stroke};stroke-width:1.6;" if stroke else "", f"fill:{fill};" if fill else ""])
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        size = f'width="{width:g}" height="{height:g}"'
        self.drawn.append(f'<rect x="{x:g}" y="{y:g}" {size} rx="6" class="{kind}" style="{paint}"{dash}/>')

    def dot(self, x: float, y: float, color: str, *, ring: bool = False) -> None:
        if ring:
            self.drawn.append(f'<circle cx="{x:g}" cy="{y:g}" r="9" fill="none" stroke="{color}" stroke-width="2"/>')
        self.drawn.append(f'<circle cx="{x:g}" cy="{y:g}" r="5.5" fill="{color}"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, *, dashed: bool = False, head: bool = False) -> None:
        dash = ' stroke-dasharray="3 4"' if dashed else ""
        self.drawn.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="line" stroke-width="1.4"{dash}/>'
        )
        if head:
            self.drawn.append(f'<path d="M{x2:g} {y2:g}l-8 -4v8z" class="arrow"/>')

    def svg(self, title: str) -> str:
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" role="img"><title>{escape(title)}</title>{STYLE}',
            f'<rect class="paper" width="{self.width}" height="{self.height}" rx="8"/>',
            *self.drawn, "</svg>\n",
        ])  # fmt: skip


def lines_of(text: str) -> list[str]:
    """A text as the lines of a box; what is left out is said."""
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, SAYS, drop_whitespace=False) or [""]]
    return lines if len(lines) <= LINES else [*lines[: LINES - 2], "…", lines[-1]]


def demonstrated(environment: Environment) -> list[Part]:
    """An episode that is solved, in which roles do as is demonstrated."""
    for index in range(100):
        task, rng = environment.task("validation", index), Random(index)
        cursor = Cursor(environment, task, rng.getrandbits(63))
        while (point := drive(cursor.advance())) is not None:
            asked = point.asked.prompts.items()
            cursor.answer({
                who: Reply(role_of(who), environment.demonstrate(role_of(who), task, text_of(prompt), rng))
                for who, prompt in asked
            })  # fmt: skip
        if cursor.log.solved:
            return list(conversation(cursor.log))
    raise AssertionError(f"{environment} solves nothing that is demonstrated")


def environment_picture(name: str) -> str:
    """What each role of an environment sees and says in one episode, and what that earns."""
    settings = [f"environment.{key}={value}" for key, value in UNTAUGHT.get(name, {}).items()]
    parts, canvas, y = demonstrated(load_environment(name, settings)), Canvas(), 30
    said = [part for part in parts if part.kind == "said"]
    colors = {
        role: COLORS[at % len(COLORS)] for at, role in enumerate(dict.fromkeys(role_of(part.who) for part in said))
    }
    canvas.text(20, y, "who", kind="soft", size=12)
    canvas.text(130, y, "sees", kind="soft", size=12)
    canvas.text(478, y, "says", kind="soft", size=12)
    for part in said[:PARTS]:
        seen, spoken = lines_of(part.prompt), lines_of(part.text)[:LINES]
        spoken = [piece for line in spoken for piece in textwrap.wrap(line, 32, drop_whitespace=False) or [""]]
        tall = 16 * max(len(seen), len(spoken)) + 14
        y += 12
        color = colors[role_of(part.who)]
        canvas.text(20, y + 20, part.who, bold=True, fill=color)
        canvas.box(122, y, 326, tall)
        canvas.line(450, y + tall / 2, 468, y + tall / 2, head=True)
        canvas.box(470, y, WIDTH - 490, tall, stroke=color)
        for at, line in enumerate(seen):
            canvas.text(130, y + 18 + 16 * at, line, mono=True, size=11)
        for at, line in enumerate(spoken):
            canvas.text(478, y + 18 + 16 * at, line, mono=True, size=11)
        y += tall
    more = len(said) - PARTS
    ended = f"{parts[-1].text}; " + ", ".join(
        part.text for part in parts if part.kind == "reward" and "team" in part.text
    )
    for line in textwrap.wrap(f"… {more} more decisions, then: {ended}" if more > 0 else ended, 104):
        canvas.text(20, y + 28, line, kind="soft", size=12)
        y += 18
    canvas.height = y + 26
    return canvas.svg(f"an episode of {name}")


def sampled(name: str) -> tuple[Environment, Algorithm, Sequence[Collected]]:
    """What an algorithm samples of one task of a toy, or of four where it plays a task once."""
    kind = find("algorithm", name, Algorithm)
    several = kind.model_fields["num_generations"].default > 1
    settings = ({"num_generations": 4} if several else {}) | TOLD.get(name, {})
    algorithm, environment = kind(**settings), TOYS.get(name, Sequential)()
    team = Team({role: f"policy {role}" for role in environment.roles})
    algorithm.check(environment, team)
    play = Play(environment, team, ScriptedEngine(lambda role, prompt, rng: str(rng.randint(0, 9))), seed=2)
    tasks = [drive(algorithm.collect(play, play.task("train", index))) for index in range(1 if several else 4)]
    return environment, algorithm, tasks


class Alone(Sequential):
    """One role, three turns."""

    roles = ("a",)
    max_turns: int = 3

    async def play(self, task, scene):
        for turn in scene.turns(self.max_turns):
            await scene.ask("a", f"a {turn}")
            scene.team_reward(0.1)
        scene.succeed()


class Attempts(Sequential):
    """a proposes something, and b attempts it three times."""

    async def play(self, task, scene):
        proposal = await scene.ask("a", "propose")
        for reply in await scene.ask_all([("b", proposal.text)] * 3):
            scene.reward(reply, float(reply.text))
        scene.succeed()


TOYS = {"magrpo": Simultaneous, "grpo": Alone, "hierarchical_grpo": Attempts}
TOLD = {"hierarchical_grpo": {"attempts": ("b",)}}
SAID: Mapping[str, str] = {
    "at_grpo": "K replies at each decision, judged within their group. The episode goes on with the best (ring).",
    "gdpo": "As at_grpo. Each reward is judged by itself within its group, and the sum is scaled over the step.",
    "grpo": "K whole episodes of one agent are compared. All replies of an episode share its advantage.",
    "mas_grpo": "K whole episodes of the team are compared. All replies of an episode share its advantage.",
    "magrpo": "All roles reply at once, K times. The i-th replies of all roles meet. The log has the first (ring).",
    "joyagents": "K replies at each node of one episode (the ring), judged within their group.",
    "joyagents_paper": "As joyagents. Of all groups, only the five whose returns vary most are trained.",
    "drmas": "K whole episodes. Mean and deviation are those of all replies of the role.",
    "c3": "K replies at each node, each continued twice. The baseline of a reply is the mean return of the others.",
    "gigpo": "K whole episodes are compared. Replies to an equal prompt, wherever it came up, are compared once more.",
    "rae": "One episode per task. The baseline of a role is the running mean of its returns over the training so far.",
    "reinforce_pp": "One episode per task. The baseline of a role is the mean over all episodes of the step.",
    "main_sub_grpo": "K whole episodes. A role's replies of an episode count once together, however many they are.",
    "wideseek": "K whole episodes of the team are compared. Each role has the same share of an episode's advantage.",
    "hierarchical_grpo": "Attempts of b at one prompt are compared within an episode; a is compared across episodes.",
    "marshal": "One episode per task. Each reply has what followed it, against all replies of its role in the step.",
}
"""What a picture of an algorithm shows."""


def algorithm_picture(name: str) -> str:
    """The groups of one task, by role."""
    environment, algorithm, tasks = sampled(name)
    groups = tasks[0].groups
    colors = {role: COLORS[at] for at, role in enumerate(environment.roles)}
    canvas = Canvas(height=26)
    if any(group.scope == "task" for group in groups):
        rows = [f"task {number}" for number in range(1, len(tasks) + 1)]
        if len(tasks) == 1:
            rows = [f"episode {number}" for number in range(1, len(tasks[0].logs) + 1)]
        attempts = [("b", f"attempt {number}") for number in (1, 2, 3)]
        turns = [(role, f"turn {turn}") for turn in range(3 if len(colors) == 1 else 2) for role in colors]
        columns = [("a", "proposal"), *attempts] if name == "hierarchical_grpo" else turns
        draw_episodes(canvas, columns, groups, colors, rows)
    elif name == "magrpo":
        draw_joint(canvas, groups, colors)
    else:
        draw_tree(canvas, groups, colors)
        told = f"dashed, at every decision: each reply is continued to the end of the {algorithm.reach}, for its return"
        canvas.text(20, canvas.height, told, kind="soft", size=12)
        canvas.height += 20
    canvas.text(20, canvas.height + 6, SAID[name], size=13)
    canvas.height += 25
    return canvas.svg(f"what {name} samples and compares")


def draw_group(canvas: Canvas, group: Group, x: float, y: float, color: str) -> None:
    """Replies to one prompt, with a ring around the one that the episode goes on with."""
    canvas.box(x, y, 22 * len(group.members) + 8, 34, stroke=color)
    for number in range(len(group.members)):
        canvas.dot(x + 15 + 22 * number, y + 17, color, ring=number == group.committed)


def draw_tree(canvas: Canvas, groups: Sequence[Group], colors: Mapping[str, str]) -> None:
    """One episode, with a group at each decision."""
    roles, y = len(colors), canvas.height + 18
    for at, group in enumerate(groups):
        x = 24 + 176 * at
        canvas.text(x, y - 6, f"{group.key.role}, turn {at // roles}", size=12, kind="soft")
        draw_group(canvas, group, x, y, colors[group.key.role])
        for number in range(len(group.members)):
            dot = x + 15 + 22 * number
            if number == group.committed and at + 1 < len(groups):
                canvas.line(dot, y + 36, x + 174, y + 17)
            elif at == 0:
                canvas.line(dot, y + 38, dot + 56, y + 62, dashed=True)
    canvas.height = y + 86


def draw_joint(canvas: Canvas, groups: Sequence[Group], colors: Mapping[str, str]) -> None:
    """Two roles that speak at once, and the branch of every pair of replies."""
    branches = list(dict.fromkeys(group.key.path.partition("@")[0] for group in groups))
    top = canvas.height + 18
    for group in groups:
        branch, _, point = group.key.path.partition("@")
        row, place = branches.index(branch), list(colors).index(group.key.role)
        x = 24 + 120 * place + 330 * int(point)
        y = top + 52 * (row if int(point) else (len(branches) - 1) / 2)
        if row == 0:
            canvas.text(x, y - 6, f"{group.key.role}, turn {point}", size=12, kind="soft")
        draw_group(canvas, group, x, y, colors[group.key.role])
        if int(point) == 0 and place == len(colors) - 1:
            for number in range(len(group.members)):
                canvas.line(x + 15 + 22 * number, y + 17, 352, top + 52 * number + 17)
    canvas.height = top + 52 * len(branches) + 14


def draw_episodes(
    canvas: Canvas,
    columns: Sequence[tuple[str, str]],
    groups: Sequence[Group],
    colors: Mapping[str, str],
    rows: Sequence[str],
) -> None:
    """Groups of whole episodes: a row an episode, a column a decision (its role, and which), a frame a group."""
    top, left, across = canvas.height + 22, 120, 150
    for at, (role, turn) in enumerate(columns):
        canvas.text(left + across * at, top - 14, f"{role}, {turn}", size=12, kind="soft", anchor="middle")
        for row in range(len(rows)):
            y = top + 16 + 32 * row
            if at:
                canvas.line(left + across * (at - 1) + 8, y, left + across * at - 8, y)
            canvas.dot(left + across * at, y, colors[role])
    for row, called in enumerate(rows):
        canvas.text(20, top + 20 + 32 * row, called, size=12, kind="soft")
    tall = 32 * len(rows)
    for group in groups:
        mine = [
            at
            for at, (role, _) in enumerate(columns)
            if group.key.role in (role, "team") or group.key.role not in colors
        ]
        if group.key.path.startswith("attempts"):
            row = int(group.key.path.split()[1].partition(".")[0])
            x = left + across * mine[0] - 15
            canvas.box(x, top + 3 + 32 * row, across * (len(mine) - 1) + 30, 26, fill="none", stroke="#8a93a3")
        elif group.scope == "prompt":
            canvas.box(left - 15, top + 3, 30, tall - 6, fill="none", stroke="#d64545", dashed=True)
        elif len(mine) == len(columns):
            canvas.box(left - 26, top - 4, across * (len(columns) - 1) + 52, tall + 8, fill="none", stroke="#8a93a3")
        else:
            for at in mine:
                canvas.box(left + across * at - 20, top - 2, 40, tall + 4, fill="none", stroke=colors[group.key.role])
    frames = {
        "team": "grey frame: one group",
        "prompt": "red frame: one more group, of replies to one prompt",
        "attempts": "grey frame: one group of attempts",
    }
    told = (
        [frames["team"]]
        if any(g.key.role not in colors for g in groups)
        else ["frames of one colour: one group, of a role"]
    )
    paths = {g.key.path.split()[0] for g in groups if g.scope == "prompt"}
    told += [frames["attempts" if path == "attempts" else "prompt"] for path in sorted(paths)]
    canvas.text(20, top + tall + 28, "; ".join(told) if len(colors) > 1 else "frame: one group", size=12, kind="soft")
    canvas.height = top + tall + 48


def step_picture() -> str:
    """One step of training."""
    canvas = Canvas(height=196)
    parts = [
        ("environment", "play asks roles"), ("engine", "samples replies"), ("sampler", "groups replies"),
        ("credit", "returns to advantages"), ("learner", "updates each policy"),
    ]  # fmt: skip
    across, wide = 148, 132
    canvas.text(18, 26, "One step", bold=True)
    for at, (name, does) in enumerate(parts):
        x = 18 + across * at
        canvas.box(x, 60, wide, 58, stroke=COLORS[at % len(COLORS)])
        canvas.text(x + wide / 2, 84, name, bold=True, anchor="middle")
        canvas.text(x + wide / 2, 104, does, size=11, kind="soft", anchor="middle")
        if at:
            canvas.line(x - 16, 89, x - 1, 89, head=True)
    for at, words in enumerate(("prompts", "samples", "groups", "advantages")):
        canvas.text(18 + across * (at + 1) - 8, 48, words, size=11, kind="soft", anchor="middle")
    last, engine = 18 + across * 4 + wide / 2, 18 + across + wide / 2
    canvas.line(last, 118, last, 150)
    canvas.line(last, 150, engine, 150)
    canvas.line(engine, 150, engine, 122)
    canvas.drawn.append(f'<path d="M{engine:g} 119l-4 8h8z" class="arrow"/>')
    canvas.text((last + engine) / 2, 170, "new weights of each policy", size=12, kind="soft", anchor="middle")
    return canvas.svg("one training step")


def fork_picture() -> str:
    """An episode's log, and the branch that begins where another answer is given."""
    canvas = Canvas(height=186)
    marks = ["asked a", "a said", "asked b", "b said", "reward", "asked a", "a said", "end"]
    across, red = 84, "#d64545"
    canvas.text(18, 26, "A branch is a replay", bold=True)
    canvas.text(18, 63, "log", size=12, kind="soft")
    canvas.text(18, 131, "branch", size=12, kind="soft")
    for at, mark in enumerate(marks):
        x = 112 + across * at
        canvas.box(x - 38, 44, 76, 30)
        canvas.text(x, 63, mark, size=11, anchor="middle")
        anew = at >= 3
        canvas.box(x - 38, 112, 76, 30, dashed=not anew, stroke=red if anew else "")
        told = mark if at < 3 else "b says" if at == 3 else "…"
        canvas.text(x, 131, told, size=11, anchor="middle", kind="" if anew else "soft")
    canvas.text(74, 168, "replayed: answers from the log, every event checked", size=12, kind="soft")
    canvas.text(112 + across * 4 - 38, 168, "played anew, with another reply of b", size=12, fill=red)
    return canvas.svg("an episode is a log, and a branch replays its beginning")


def group_picture() -> str:
    """The advantages of the same replies in one group, and in a group for each prompt."""
    canvas = Canvas(height=240)
    canvas.text(18, 26, "What may be compared", bold=True)
    kinds = ("planner, turn 0", "checker, turn 0", "planner, turn 1")
    returns = ((0.1, 0.3, 0.2, 0.2), (0.9, 0.7, 0.8, 0.8), (0.4, 0.6, 0.5, 0.5))
    mixed = sum(map(sum, returns)) / 12
    for apart, title in enumerate(("one group of three prompts", "a group for each prompt")):
        x = 24 + 370 * apart
        canvas.text(x, 58, title, size=12, kind="soft")
        if not apart:
            canvas.box(x + 102, 72, 210, 134, fill="none", stroke="#8a93a3")
        for row, (name, values) in enumerate(zip(kinds, returns, strict=True)):
            y, color, mean = 78 + 44 * row, COLORS[row], sum(values) / 4 if apart else mixed
            canvas.text(x, y + 22, name, size=12, fill=color)
            if apart:
                canvas.box(x + 102, y, 210, 34, fill="none", stroke=color)
            for at, value in enumerate(values):
                advantage = round(value - mean, 2) + 0.0
                paint = "#1d9a6c" if advantage > 0 else "#d64545" if advantage < 0 else ""
                canvas.text(x + 132 + 50 * at, y + 22, f"{advantage:+.1f}", size=13, anchor="middle", fill=paint)
    told = "Advantages: the return minus the mean of the group. Mixed, every reply of the checker looks good."
    canvas.text(24, 228, told, size=12, kind="soft")
    return canvas.svg("groups of one prompt, beside a group that mixes three")


def main(folder: Path) -> None:
    """Writes all of them."""
    folder.mkdir(exist_ok=True)
    for name, text in pictures().items():
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")


def pictures() -> dict[str, str]:
    """All of them, by name."""
    return {
        "step": step_picture(), "fork": fork_picture(), "groups": group_picture(),
        **{f"environment-{name}": environment_picture(name) for name in DRAWN},
        **{f"algorithm-{name}": algorithm_picture(name) for name in TABLES["algorithm"]},
    }  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
