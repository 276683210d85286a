"""What the docs show works: code blocks run, commands exist, numbers have a command."""

import re
import tomllib
from pathlib import Path

import pytest

from coterie import check
from coterie.bench import BENCHES
from coterie.environment import Environment
from coterie.registry import ALGORITHMS, ENVIRONMENTS, find

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


ENVIRONMENT_BLOCKS = [
    (page.name, block) for page in PAGES for block in blocks(page, "python") if "(Environment)" in block
]


@pytest.mark.parametrize(("page", "block"), ENVIRONMENT_BLOCKS, ids=[name for name, _ in ENVIRONMENT_BLOCKS])
def test_environments_in_the_docs_keep_the_contract(page, block, tmp_path):
    file = tmp_path / "my_env.py"
    file.write_text(block)
    name = re.search(r"class (\w+)\(Environment\)", block)[1]
    report = check(find("environment", f"{file}:{name}", {}, Environment)(), tasks=1)
    assert report.ok, report


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_docs_name_verbs_files_and_settings_that_exist(page):
    verbs = {"train", "eval", "play", "sft", "list", "check", "bench"}
    targets = set((ROOT / "Makefile").read_text().split())
    for command in re.findall(r"coterie ((?:[a-z]+) [^\n`]*)", page.read_text()):
        words = command.split()
        if words[0] in verbs:
            for word in words[1:]:
                if word.startswith("configs/"):
                    assert (ROOT / word.rstrip(".,")).exists(), command
            if words[0] == "bench" and words[1].isidentifier() and words[1].islower():
                assert words[1] in BENCHES, command
    for target in re.findall(r"make ([a-z-]+)`", page.read_text()):
        assert f"{target}:" in targets, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


def test_toml_in_the_docs_is_toml():
    for page in PAGES:
        for block in blocks(page, "toml"):
            tomllib.loads(block)


def test_every_algorithm_and_environment_has_its_page():
    for name in ALGORITHMS:
        assert (ROOT / f"docs/algorithms/{name}.md").exists()
    assert all(f"## {name}" in (ROOT / "docs/environments.md").read_text() for name in ENVIRONMENTS)


def test_every_metric_of_a_run_has_a_row(tmp_path):
    from coterie import load_config, train
    from coterie.models import save_model
    from tests.toys import tiny

    save_model(tiny(), tmp_path / "model")
    sets = [
        f"policies.team.model={tmp_path / 'model'}",
        "train.steps=2",
        "train.tasks_per_step=2",
        "train.eval_tasks=3",
    ]
    run = train(load_config("tests/toys.py:Agree", [*sets, "algorithm.kl=0.01"]), tmp_path / "run")
    documented = (ROOT / "docs/metrics.md").read_text()
    for name in {name for line in run.metrics() for name in line}:
        general = re.sub(r"^(role|reward|validation/reward)/[^/]+", r"\1/R", re.sub(r"^policy/[^/]+", "policy/P", name))
        last = general.rsplit("/", 1)[-1]
        stem = re.sub(r"_(low|high)$", "", last)
        assert f"`{general}`" in documented or f"`{last}`" in documented or f"{stem}`, `_low`" in documented, name
