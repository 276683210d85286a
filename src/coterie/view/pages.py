"""The viewer's pages: what each address shows, as HTML that needs no script.

Addresses are folders, and links between them relative, so that a server and a folder of files show the same.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.config.toml import leaves
from coterie.errors import CheckpointError
from coterie.kernel.group import Group
from coterie.kernel.safe import one_line, plain
from coterie.report.charts import COLORS
from coterie.report.conversation import conversation
from coterie.report.curves import chart, sections
from coterie.report.looks import templates
from coterie.report.story import story
from coterie.report.trees import TreeSeen, seen, shifted
from coterie.view.measured import MeasureCache
from coterie.view.shelf import Book, Shelf

AT_ONCE = 100
"""Maximum number of rows of a page."""
FOUND = 50
"""Maximum number of replies that a search shows."""
LOOKED_AT = 20
"""Maximum number of saved rollouts that a search reads at once."""
TABS = {
    "": "Story", "curves/": "Curves", "roles/": "Roles", "rollouts/": "Rollouts", "warnings/": "Warnings",
    "memory/": "Memory", "config/": "Config",
}  # fmt: skip
PLACES = {
    "curves": "curves/",
    "warnings": "warnings/",
    "roles": "roles/",
    "rollouts": "rollouts/",
    "cost": "curves/#cost",
}
"""Addresses within a run to which a story's answers lead."""


class Missing(Exception):
    """Raised when nothing is at an address."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page before its template renders it. title: of the page. trail: the pages above it, with their addresses."""

    template: str
    title: str
    content: Mapping[str, Any]
    trail: Sequence[tuple[str, str]] = ()
    book: Book | None = None
    tab: str = ""
    live: bool = False


class Site:
    """All pages of the viewer.

    Args:
        static: they are written to files, where nothing can be asked for.
    """

    def __init__(self, shelf: Shelf, *, static: bool = False) -> None:
        self.shelf = shelf
        self.static = static
        self.measured = MeasureCache()
        self._templates = templates("coterie.view")
        self._pages: dict[str, Callable[..., Page]] = {
            "": self._story, "curves": self._curves, "roles": self._roles, "warnings": _warnings, "memory": _memory,
            "config": _config, "rollouts": self._in_rollouts,
        }  # fmt: skip
        """Functions that make the pages of a run, by the first word of the address.
        Each is given the run, the query and the numbers in the address."""
        if not static:
            self._pages["find"] = self._find

    def get(self, address: str, query: Mapping[str, str] | None = None) -> str:
        """Returns a page as text.

        Args:
            address: without the first slash, and with the last.

        Raises:
            Missing: there is none.
            CheckpointError: what it would show cannot be read.
        """
        parts = [part for part in address.split("/") if part]
        try:
            return self.show(address, self._page(parts, query or {}))
        except (Missing, CheckpointError):
            raise
        except Exception as error:  # a folder may hold anything
            told = f"{type(error).__name__}: {one_line(str(error)):.200}"
            raise CheckpointError(f"run '{parts[0] if parts else ''}' holds what no run writes: {told}") from error

    def show(self, address: str, page: Page) -> str:
        """Renders a page that was made elsewhere, for its address, and returns it as text."""
        root = "../" * address.count("/") or "./"
        text = self._templates.get_template(page.template).render(
            page=page, root=root, static=self.static, tabs=TABS, **page.content
        )
        return plain(text)

    def _page(self, parts: list[str], query: Mapping[str, str]) -> Page:
        if not parts:
            return self._overview()
        book = self.shelf.book(parts[0])
        name, *deeper = parts[1:] or [""]
        made = self._pages.get(name)
        if book is None or made is None or (deeper and name != "rollouts"):
            raise Missing
        return made(book, query, *map(number_of, deeper))

    def _overview(self) -> Page:
        books: list[Book] = []
        unread: list[tuple[Book, str]] = []
        rows: list[dict[str, Any]] = []
        for book in self.shelf.books():
            try:
                rows.append(_row(book, COLORS[len(rows) % len(COLORS)]))
                books.append(book)
            except Exception as error:  # one that holds what no run writes hides no other
                told = str(error) if isinstance(error, CheckpointError) else f"{type(error).__name__}: {error}"
                unread.append((book, f"{one_line(told):.300}"))
        lines, names = [book.lines for book in books], [book.name for book in books]
        shown = [chart("validation/success", lines, names, across) for across in ("budget/sampled_tokens", "step")]
        for row, mine in zip(rows, _differences(books), strict=True):
            row["differs"] = mine
        content = {"rows": rows, "charts": [one for one in shown if one], "unread": unread}
        return Page("overview.html", "Runs", content, live=True)

    def _story(self, book: Book, query: Mapping[str, str]) -> Page:
        told = story(book.lines, tuple(book.roles), book.steps, self._probe(book))
        team = next(self._sections([book]), None)
        saved = book.run.saved_episodes()
        content = {"told": told, "places": PLACES, "team": team, "saved": saved, "words": _says(book, saved)}
        return _of(book, "story.html", book.title, content)

    def _probe(self, book: Book) -> Mapping[str, float]:
        """Returns what muting each role changes, named as in metrics.jsonl, and the step; {} if it was not measured."""
        measure = self.measured.measures.get(book.identity)
        found: dict[str, float] = {}
        if measure is None:
            return found
        for one in measure.changes:
            if one.ablation.startswith("mute "):
                found["step"] = measure.step
                found |= one.metrics(f"mute/{one.ablation.removeprefix('mute ')}")
        return found

    def _sections(self, books: Sequence[Book]) -> Iterator[tuple[str, Any]]:
        lines, names = [book.lines for book in books], [book.name for book in books]
        return sections(lines, names, tuple(books[0].roles), books[0].policies)

    def _curves(self, book: Book, query: Mapping[str, str]) -> Page:
        return _of(book, "curves.html", "Curves", {"sections": self._sections([book])})

    def _roles(self, book: Book, query: Mapping[str, str]) -> Page:
        probes = {
            role: [line for line in book.lines if f"mute/{role}/change" in line] for role in book.roles
        }  # fmt: skip
        figures = [chart(f"mute/{role}/change", [book.lines], [role]) for role in book.roles]
        shown = [(title, some) for title, some in self._sections([book]) if title.startswith("Role ")]
        content = {
            "probes": probes, "figures": [one for one in figures if one], "sections": shown,
            "measure": self.measured.measures.get(book.identity),
        }  # fmt: skip
        return _of(book, "roles.html", "Roles", content)

    def _in_rollouts(self, book: Book, query: Mapping[str, str], *numbers: int) -> Page:
        """Returns the page of all saved rollouts, of the one of a step, of a task there, or of a group of its."""
        makers: list[Callable[..., Page]] = [self._rollouts, self._rollout, self._tree, self._group]
        if len(numbers) >= len(makers):
            raise Missing
        return makers[len(numbers)](book, query, *numbers)

    def _rollouts(self, book: Book, query: Mapping[str, str]) -> Page:
        by_step = {int(line["step"]): line for line in book.lines}
        rows = [(step, by_step.get(step, {})) for step in reversed(book.run.saved_episodes())]
        return _of(book, "rollouts.html", "Rollouts", self._window(rows, query))

    def _rollout(self, book: Book, query: Mapping[str, str], step: int) -> Page:
        tasks = [seen(played) for played in _saved(book, step)]
        content = {**_beside(step, book.run.saved_episodes()), **self._window(list(enumerate(tasks)), query)}
        return _of(book, "rollout.html", f"Rollout of step {step}", content, _trail(1))

    def _tree(self, book: Book, query: Mapping[str, str], step: int, task: int) -> Page:
        played = _saved(book, step)
        tree = seen(_at(played, task), address=lambda group: f"{group}/")
        content = {
            "tree": tree, "logs": [(log, list(conversation(log))) for log in tree.logs],
            **_beside(task, range(len(played))),
        }  # fmt: skip
        return _of(book, "tree.html", f"Task {tree.task}", content, _trail(2, step))

    def _group(self, book: Book, query: Mapping[str, str], step: int, task: int, number: int) -> Page:
        tree: TreeSeen = seen(_at(_saved(book, step), task), book.words)
        group = _at(tree.groups, number)
        at = int(query["at"]) if query.get("at", "").isdecimal() and len(query["at"]) < 10 else None
        told = None if at is None else self.measured.later((book.identity, step, task, number, at))
        group = shifted(group, told) if told else group
        steps = book.run.checkpoints.steps() if not self.static and all(one.tokens for one in group.members) else []
        content = {
            "group": group, "at": at if told else None, "steps": steps,
            "later": next((one for one in steps if one >= step), steps[-1] if steps else None),
            **_beside(number, range(len(tree.groups))),
        }  # fmt: skip
        title = f"Group {number + 1} of {len(tree.groups)}: {group.role} at {group.path}"
        return _of(book, "group.html", title, content, [*_trail(3, step), (f"Task {tree.task}", "../")])

    def _find(self, book: Book, query: Mapping[str, str]) -> Page:
        """Returns the page of replies that hold a text, from a saved rollout backwards."""
        text, role = query.get("text", ""), query.get("role", "")
        saved = book.run.saved_episodes()
        upto = query.get("upto", "")
        known = upto.isdecimal() and len(upto) < 10
        steps = [step for step in reversed(saved) if not known or step <= int(upto)]
        found: list[tuple[int, int, int, str, str]] = []
        left: int | None = None
        for count, step in enumerate(steps if text else ()):
            if count == LOOKED_AT or len(found) >= FOUND:
                left = step
                break
            found += [one for one in _said(book, step) if text.lower() in one[-1].lower() and role in ("", one[-2])]
        content = {
            "text": text, "role": role, "roles": list(book.roles), "found": found[:FOUND], "left": left,
            "more": max(0, len(found) - FOUND),
        }  # fmt: skip
        return _of(book, "find.html", "Find what was said", content, live=False)

    def _window(self, rows: Sequence[Any], query: Mapping[str, str]) -> dict[str, Any]:
        """Returns the rows of one page, and where others are; in files, which cannot be asked for more, all."""
        asked = query.get("from", "0")
        start = int(asked) if asked.isdecimal() and len(asked) < 10 and int(asked) < len(rows) else 0
        end = len(rows) if self.static else start + AT_ONCE
        return {
            "rows": rows[start:end], "start": start, "total": len(rows),
            "earlier": max(0, start - AT_ONCE) if start else None, "later": end if end < len(rows) else None,
        }  # fmt: skip


def _of(
    book: Book, template: str, title: str, content: Mapping[str, Any], trail: Sequence[tuple[str, str]] = (), *,
    live: bool = True,
) -> Page:  # fmt: skip
    """Returns a page of a run; its tab is the one that its template is of."""
    tab = {"story.html": ""}.get(template, f"{template.removesuffix('.html')}/")
    if tab.split("/")[0] in ("rollout", "tree", "group"):
        tab, live = "rollouts/", False
    return Page(template, title, content, trail, book, tab, live)


def _trail(depth: int, step: int | None = None) -> list[tuple[str, str]]:
    """Returns links to the rollouts, and to the rollout of a step, from a page so deep in them."""
    trail = [("Rollouts", "../" * depth)]
    return trail if step is None else [*trail, (f"Step {step}", "../" * (depth - 1))]


def number_of(part: str) -> int:
    """Returns a part of an address as a number. Raises: Missing: it is none."""
    if not part.isdecimal() or len(part) > 9:
        raise Missing
    return int(part)


def _saved(book: Book, step: int) -> Sequence[Any]:
    if step not in book.run.saved_episodes():
        raise Missing
    return book.rollout(step)


def group_of(book: Book, step: int, task: int, number: int) -> Group:
    """Returns a group of a saved rollout. Raises: Missing: there is none."""
    return _at(_at(_saved(book, step), task).collected.groups, number)


def _at(some: Sequence[Any], number: int) -> Any:
    if number >= len(some):
        raise Missing
    return some[number]


def _beside(number: int, all_of_them: Sequence[int]) -> dict[str, str]:
    """Returns the addresses of the pages before and after one of several."""
    at = all_of_them.index(number)
    before, after = all_of_them[:at][-1:], all_of_them[at + 1 :][:1]
    return {name: "".join(f"../{one}/" for one in some) for name, some in (("before", before), ("after", after))}


def _row(book: Book, color: str) -> dict[str, Any]:
    """Returns a run as a row of the list. Raises: whatever a folder holds that no run writes."""
    last = book.last
    validation = [
        f"{last[f'validation/success{end}']:.3f}" for end in ("", "_low", "_high") if "validation/success" in last
    ]
    # The list needs these two later as well. A damaged run must raise here, where only its own row is lost.
    _ = chart("validation/success", [book.lines], [book.name]), book.tables["environment"]["name"]
    return {
        "book": book, "color": color, "title": book.title, "step": book.step, "steps": book.steps,
        "running": book.running, "validation": validation, "tokens": f"{last.get('budget/sampled_tokens', 0):,.0f}",
        "warnings": list(dict.fromkeys(one.kind.replace("_", " ") for one in book.wrong)),
    }  # fmt: skip


def _differences(books: Sequence[Book]) -> list[list[tuple[str, str]]]:
    """Returns, for each run, the settings in which it differs from another of the same environment."""
    told = [dict(leaves(book.tables)) for book in books]
    found: list[list[tuple[str, str]]] = []
    for mine in told:
        others = [each for each in told if each["environment.name"] == mine["environment.name"]]
        keys = {key for each in others for key in each if any(each.get(key) != one.get(key) for one in others)}
        found.append([(key, str(mine[key])) for key in mine if key in keys])
    return found


def _says(book: Book, saved: Sequence[int]) -> list[tuple[str, str]]:
    """Returns a reply of each role in the latest saved rollout, as a taste; none if it cannot be read."""
    found: dict[str, str] = {}
    try:
        first = book.rollout(saved[-1])[:1] if saved else []
    except CheckpointError:
        first = []
    for played in first:
        for group in played.collected.groups:
            member = group.members[group.committed or 0]
            found.setdefault(group.key.role, member.samples[0].text)
    return list(found.items())


def _said(book: Book, step: int) -> Iterator[tuple[int, int, int, str, str]]:
    """Yields the replies of a saved rollout: step, task, group, role, and the text; in a group, each once."""
    for task, played in enumerate(book.rollout(step)):
        for number, group in enumerate(played.collected.groups):
            for text in dict.fromkeys(one.text for member in group.members for one in member.samples):
                yield step, task, number, group.key.role, text


def _warnings(book: Book, query: Mapping[str, str]) -> Page:
    return _of(book, "warnings.html", "Warnings", {"warnings": book.warnings})


def _config(book: Book, query: Mapping[str, str]) -> Page:
    return _of(book, "config.html", "Config", {"settings": list(leaves(book.tables)), "about": book.about})


def _memory(book: Book, query: Mapping[str, str]) -> Page:
    settings = book.tables.get("memory", {"mode": "off"})
    progress = book.progress
    store = progress.memory if progress else None
    entries = sorted(store.entries, key=lambda entry: (entry.role, -entry.utility)) if store else []
    figures = [one for title, some in sections([book.lines], [book.name], (), ()) if title == "Memory" for one in some]
    return _of(book, "memory.html", "Memory", {"mode": settings["mode"], "entries": entries, "charts": figures})


def script() -> str:
    """Returns the script of the pages, for all that they do beyond links and forms."""
    return importlib.resources.files("coterie.view").joinpath("static/view.js").read_text(encoding="utf-8")
