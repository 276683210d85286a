"""What the docs show works: code blocks run, commands exist, numbers have a command."""

import csv
import json
import os
import re
import shlex
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

import benchmarks
from coterie import check
from coterie.bench import BENCHES
from coterie.installed import starter_folder
from coterie.kernel.environment import Environment
from coterie.registry import ALGORITHMS, find, shipped
from tests.pictures import DRAWN
from tests.test_cli import call

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language, or in none."""
    fenced = re.findall(r"^( *)```(\w*)\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, name, block in fenced if name == language]


ENVIRONMENT_NAME = re.compile(r"class (\w+)\(Environment\)")
ENVIRONMENT_BLOCKS = [
    (page.name, block) for page in PAGES for block in blocks(page, "python") if "(Environment)" in block
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), ENVIRONMENT_BLOCKS, ids=[name for name, _ in ENVIRONMENT_BLOCKS])
def test_environments_in_the_docs_keep_the_contract(page, block, tmp_path):
    file = tmp_path / "my_env.py"
    file.write_text(block)
    name = ENVIRONMENT_NAME.search(block)[1]
    report = check(find("environment", f"{file}:{name}", Environment)(), tasks=1)
    assert report.ok, report


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_docs_name_verbs_files_and_settings_that_exist(page):
    verbs = {"train", "eval", "play", "report", "sft", "list", "check", "doctor", "bench"}
    targets = set((ROOT / "Makefile").read_text().split())
    for command in re.findall(r"coterie ((?:[a-z]+) [^\n`]*)", page.read_text()):
        words = command.split()
        if words[0] in verbs:
            for word in words[1:]:
                if word.startswith("configs/"):
                    assert (ROOT / word.rstrip(".,")).exists(), command
            if words[0] == "bench" and words[1].isidentifier() and words[1].islower():
                assert words[1] in BENCHES, command
    for name in re.findall(r"python -m benchmarks ([a-z_]+)", page.read_text()):
        assert name in benchmarks.BENCHES, name
    for target in re.findall(r"make ([a-z-]+)`", page.read_text()):
        assert f"{target}:" in targets, target


def test_the_makefile_names_benchmarks_that_exist():
    text = (ROOT / "Makefile").read_text()
    looped = re.findall(r"for name in ([a-z_ ]+); do .* -m benchmarks \$\$name", text)
    assert looped, "`make bench` was not found"
    named = [*" ".join(looped).split(), *re.findall(r"-m benchmarks ([a-z_]+)", text)]
    assert not set(named) - set(benchmarks.BENCHES)
    assert set(re.findall(r"coterie bench ([a-z_]+)", text)) == set(BENCHES)


def test_the_tutorial_shows_what_coterie_new_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("new", "environment", "my_env")[0] == 0
    assert (tmp_path / "my_env.py").read_text() in blocks(ROOT / "docs/tutorial.md", "python")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for link, at in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", page.read_text()):
        if not link.startswith("http"):
            target = page.parent / link if link else page
            assert target.exists(), link
            assert not at or at in anchors(target), f"{link}#{at}"


def anchors(page: Path) -> set[str]:
    """What links to a page's headings may name."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_toml_in_the_docs_is_toml():
    for page in PAGES:
        for block in blocks(page, "toml"):
            tomllib.loads(block)


def test_every_algorithm_and_environment_has_its_page():
    for name in ALGORITHMS:
        assert (ROOT / f"docs/algorithms/{name}.md").exists()
    assert all(f"## {name}" in (ROOT / "docs/environments.md").read_text() for name in shipped("environment"))


def test_the_gallery_shows_every_world_and_algorithm_and_every_page_can_be_reached():
    gallery, site = (ROOT / "docs/gallery.md").read_text(), (ROOT / "properdocs.yml").read_text()
    assert [name for name in DRAWN if f"](environments.md#{name})" not in gallery] == []
    assert [name for name in (*ALGORITHMS, *DRAWN) if f"### {name}\n" not in gallery] == []
    pages = (str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
    assert [page for page in pages if f" {page}\n" not in site] == []


@pytest.mark.slow
def test_every_metric_of_a_run_has_a_row(tmp_path):
    from coterie import load_config, train
    from coterie.models.load import save_model
    from tests.toys import tiny

    save_model(tiny(), tmp_path / "model")
    sets = [
        f"policies.team.model={tmp_path / 'model'}",
        "train.steps=2",
        "train.tasks_per_step=2",
        "train.eval_tasks=3",
    ]
    run = train(load_config("tests/toys.py:Agree", [*sets, "loss.kl=0.01"]), tmp_path / "run")
    documented = (ROOT / "docs/metrics.md").read_text()
    for name in {name for line in run.metrics() for name in line}:
        general = re.sub(r"^(role|reward|validation/reward)/[^/]+", r"\1/R", re.sub(r"^policy/[^/]+", "policy/P", name))
        last = general.rsplit("/", 1)[-1]
        stem = re.sub(r"_(low|high)$", "", last)
        assert f"`{general}`" in documented or f"`{last}`" in documented or f"{stem}`, `_low`" in documented, name


QUICK = "train.steps=2 train.tasks_per_step=2 train.eval_tasks=4 train.mute_tasks=4 eval.tasks=4"
SMALL = {
    "plan": [],
    "new": [],
    "train": [word for setting in QUICK.split() for word in ("--set", setting)],
    "eval": ["--tasks", "4"],
    "report": ["--tasks", "2"],
    "matrix": ["--games", "2"],
    "play": [],
    "update": [],
    "check": ["--tasks", "1"],
    "audit": [],
    "sft": ["--set", "sft.steps=1", "--set", "sft.tasks_per_step=1"],
    "doctor": [],
    "export": [],
    "list": [],
    "data": [],
    "view": [],
}
"""What makes a command of the docs quick, without changing what it is."""


def commands(page: Path) -> list[list[str]]:
    """The commands of a page's code blocks, as typed, without demonstrations and what `make test-plans` runs."""
    typed = [line for block in blocks(page, "") for line in block.splitlines() if line.startswith("coterie ")]
    elsewhere = ("coterie bench", "coterie plan configs/gpu/")
    return [shlex.split(line, comments=True)[1:] for line in typed if not line.startswith(elsewhere)]


def small(words: list[str]) -> list[str]:
    """The command at a size for tests: the shipped model for one to download, a step that a small run saves."""
    words = [word.replace("Qwen/Qwen3-0.6B", "starter").replace("playouts=8", "playouts=0") for word in words]
    if "--step" in words:
        step = words.index("--step") + 1
        words[step] = str(min(int(words[step]), 2))
    if "--task" in words:
        words[words.index("--task") + 1] = "1"
    if words[0] == "view" and "--bundle" not in words:  # which would serve until it is stopped
        return [*words, "--bundle", "-".join(["bundle", *words[1:]]).replace("/", "-")]
    if "--resume" in words:
        return [re.sub(r"^train\.steps=\d+$", "train.steps=4", word) for word in words]
    short = words[1].startswith(("gateway:", "prompts:", "pettingzoo:"))
    return [*words, *SMALL[words[0]], *(["--set", "environment.max_tokens=4"] if short else [])]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_every_command_and_python_block_of_a_page_runs(page, tmp_path, monkeypatch):
    """In the order of the page, in an empty folder with the configs, and an environment and an agent of one's own.

    A real model's name stands for the shipped starter here; what is chosen to fit a real model stays.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("coterie.models.obtain.obtain", lambda name, where="": starter_folder("starter"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # as where .venv is activated
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    mine = next((block for name, block in ENVIRONMENT_BLOCKS if name == page.name), ENVIRONMENT_BLOCKS[-1][1])
    if not any(words[0] == "new" for words in commands(page)):
        (tmp_path / "my_env.py").write_text(f"{mine}\n\nMyEnv = {ENVIRONMENT_NAME.search(mine)[1]}\n")
    for block in blocks(page, "toml"):
        (tmp_path / "my_team.toml").write_text(block)
    for block in blocks(page, "python"):
        if named := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / named[1]).write_text(block)
    for row in map(json.loads, "\n".join(blocks(page, "jsonl")).splitlines()):
        rows = [json.dumps({**row, "prompt": f"{number}: {row['prompt']}"}) for number in range(60)]
        (tmp_path / "questions.jsonl").write_text("\n".join(rows))
    titles, *rows = csv.reader("".join(blocks(page, "csv") or blocks(ROOT / "docs/rewards.md", "csv")).splitlines())
    with (tmp_path / "qa.csv").open("w", newline="") as file:
        csv.writer(file).writerows([titles, *([f"{n}: {row[0]}", *row[1:]] for n in range(60) for row in rows)])
    typed = commands(page)
    trained = {words[words.index("--out") + 1] for words in typed if words[0] == "train" and "--out" in words}
    for folder in ("runs/first", "runs/second"):
        if folder not in trained and any(folder in words for words in typed):
            code, _, err = call("train", "plan_path", "--out", folder, *SMALL["train"])
            assert code == 0, err
    for words in typed:
        code, _, err = call(*small(words))
        assert code == 0, (words, err)
    for block in blocks(page, "python"):
        quick = re.sub(r'(train\("\w+", "[^"]+")\)', r"\1, steps=2)", re.sub(r"tasks=\d+", "tasks=4", block))
        exec(compile(quick, page.name, "exec"), {"__name__": page.stem})
