"""The command line: what it prints, and that a person's mistake is one line, exit code 2, nothing written."""

import importlib
import json
import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie.bench import BENCHES
from coterie.cli import app, main
from coterie.commands.untrained import names_config, played_by
from coterie.config.resolve import load_config
from coterie.kernel.environment import Environment
from coterie.kernel.episode import Called, Log, Noted, Returned
from coterie.models.load import save_model
from coterie.registry import ALGORITHMS
from coterie.report.output import ENDED_BY, ended_by, stopped
from coterie.report.text import log_text
from coterie.run.interrupts import Stop
from coterie.run.loaded import Loaded
from tests.toys import tiny

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    save_model(tiny(scale=2.0), folder / "model")
    sets = [
        f"policies.team.model={folder / 'model'}",
        "train.steps=2",
        "train.tasks_per_step=2",
        "train.eval_tasks=4",
        "algorithm.num_generations=3",
        "eval.tasks=6",
    ]
    code, _, err = call(
        "train", "tests/toys.py:Agree", "--out", str(folder / "run"), *(x for s in sets for x in ("--set", s))
    )
    assert code == 0, err
    return folder / "run"


def call(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of the real entry point, in this process."""
    import contextlib
    import io

    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["coterie", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as left:
        return int(left.code or 0), out.getvalue(), err.getvalue()
    finally:
        sys.argv = before
    raise AssertionError("main() must exit")


def test_other_data_is_for_environments_that_play_some(run):
    code, _, err = call("eval", str(run), "--data", "rows.jsonl")
    assert (code, err.count("\n")) == (2, 1)
    assert "Agree plays no data of others" in err
    code, _, err = call("eval", str(run), "--data", "rows.jsonl", "--split", "validation")
    assert (code, "leave --split validation out" in err) == (2, True)


def test_the_package_can_be_run_as_a_module():
    told = subprocess.check_output([sys.executable, "-m", "coterie", "--version"], text=True)
    assert told.strip() == metadata.version("coterie")


def test_help_names_every_verb_and_how_to_begin():
    result = CliRunner().invoke(app, ["--help"])
    assert "coterie train errand --model smollm2" in result.output
    for verb in ("train", "eval", "play", "sft", "list", "check", "bench"):
        assert f"  {verb} " in result.output


def test_python_m_coterie_is_the_command():
    said = subprocess.check_output([sys.executable, "-m", "coterie", "--version"], text=True)
    assert said.strip() == metadata.version("coterie")


def test_ctrl_c_while_the_command_is_imported_is_one_line():
    script = (
        "import sys\nfrom coterie.__main__ import main\n"
        "class Stopped:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stopped())\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ncoterie: interrupted\n")


def test_help_needs_no_torch():
    script = "import sys\nfrom coterie.cli import app\nassert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_an_environment_and_the_samplers_are_read_without_torch():
    script = (
        "import sys\nimport coterie_worlds.games.plan_path, coterie.algorithms.at_grpo, coterie.config.resolve\n"
        "import coterie.checks.conformance\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_only_reads_runs_needs_no_torch():
    script = "import sys\nimport coterie.report.gather, coterie.report.audit, coterie.commands.readers\n"
    subprocess.run([sys.executable, "-c", f"{script}assert 'torch' not in sys.modules"], check=True)


def test_training_off_a_terminal_prints_plain_lines(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 3


def test_eval_prints_one_object_for_machines(run):
    code, out, err = call("eval", str(run), "--json")
    assert code == 0, err
    found = json.loads(out)
    assert {"success", "success_low", "success_high", "turns", "tasks", "rewards"} <= set(found)
    assert found["tasks"] == 6
    assert set(found["rewards"]) >= {"a", "b"}


def agree(run: Path, *sets: str) -> list[str]:
    """Arguments that name the environment of the run, untrained, with its model."""
    model = f"policies.team.model={run.parent / 'model'}"
    return ["tests/toys.py:Agree", *(x for each in (model, *sets) for x in ("--set", each))]


def test_eval_measures_a_config_before_training_and_ends_with_a_verdict(run, tmp_path):
    log = tmp_path / "episodes.jsonl"
    code, out, err = call("eval", *agree(run), "--tasks", "5", "--sampled", "3", "--log", str(log))
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("validation: ")
    assert "5 tasks, greedy" in lines[1]
    assert "5 tasks, 3 sampled episodes a task" in out
    assert "pass@1 " in out
    assert "pass@3 " in out
    assert "  a is asked: pick" in lines
    assert any(line.startswith("an episode, ") for line in lines)
    assert "5 train tasks, played as a training step plays them: 10 groups of replies" in lines
    assert lines[-1].startswith("RL has ")
    assert len(log.read_text().splitlines()) == 15
    assert "playing train tasks as a training step does" in err


def test_eval_of_a_config_prints_one_object_for_machines(run):
    code, out, err = call("eval", *agree(run, "train.temperature=0.5"), "--tasks", "3", "--mute", "a", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["greedy"]["tasks"], told["greedy"]["split"], told["sampled"]) == (3, "validation", None)
    assert [each["ablation"] for each in told["greedy"]["ablations"]] == ["mute a"]
    assert told["signal"]["groups"] == 6
    assert told["signal"]["verdict"].startswith("RL has ")


def test_a_folder_of_an_environments_name_does_not_hide_the_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tally").mkdir()
    assert names_config("tally")
    (tmp_path / "tally" / "config.toml").touch()
    assert not names_config("tally")
    (tmp_path / "mine").mkdir()
    assert not names_config("mine")


def test_eval_takes_a_model_for_all_trained_policies(run):
    model = str(run.parent / "model")
    code, out, err = call(
        "eval", "plan_path", "--model", model, "--tasks", "1", "--set", "environment.size=4", "--json"
    )
    assert code == 0, err
    assert set(json.loads(out)["signal"]["entropy"]) == {"pilot", "scout"}
    code, _, err = call("eval", "plan_path", "--model", "/nowhere", "--tasks", "1")
    assert (code, err.splitlines()[-1].startswith("coterie: policies.")) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["play", "--task", "5000"], "there is no validation task 5000: there are"),
        (["eval", "--mute", "judge"], "--mute judge: unknown role 'judge'"),
        (["eval", "--swap", "a,judge"], "unknown role 'judge'"),
    ],
)
def test_a_mistake_is_told_before_any_model_is_loaded(words, told, run, monkeypatch):
    def loads(*_):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("coterie.cli.team_of", loads)
    monkeypatch.setattr("coterie.commands.measuring.team_of", loads)
    monkeypatch.setattr(Environment, "count", lambda self, split: 5000)
    code, _, err = call(words[0], str(run), *words[1:])
    assert (code, err.count("\n")) == (2, 1)
    assert told in err


def test_an_untrained_team_is_the_one_that_train_begins_with():
    trained = load_config("errand", ["policies.*.model=smollm2"])
    assert played_by("errand", [], "smollm2").tables() == trained.tables()
    assert set(trained.policies) == {"clerk", "cashier"}, "an adapter a role, not one for both"


def test_eval_for_people_names_the_interval(run):
    code, out, _ = call("eval", str(run), "--split", "validation", "--sampled", "2", "--tasks", "3")
    assert code == 0
    assert "95 % interval" in out
    assert "3 tasks, 2 sampled episodes a task" in out


def test_play_shows_an_episode_and_a_tree(run):
    code, out, _ = call("play", str(run), "--task", "1")
    assert code == 0
    assert out.startswith("validation task 1, played by the checkpoint of step ")
    assert "a is asked" in out
    code, out, _ = call("play", str(run), "--step", "1", "--task", "1", "--tree")
    assert code == 0
    assert out.count("point ") == 2
    assert out.count("  r ") == 6
    assert out.count("    * a ") == 2


def test_options_that_a_tree_or_a_bug_would_not_use_are_refused(run):
    for options in (("--tree", "--step", "1"), ("--bug",)):
        for idle in (("--as", "a"), ("--temperature", "1")):
            code, _, err = call("play", str(run), *options, *idle)
            assert code == 2
            assert f"--as and --temperature have no effect with {options[0]}; leave them away" in err


def test_a_call_its_result_and_a_metric_are_shown_in_words():
    log = Log(task="t", id="0", seed=0, events=(
        Called("tools:price", ["red mug", 2]), Returned(3), Called("tools:price", []),
        Returned(error=("KeyError", "'x'\x1b")), Called("tools:echo", ["x" * 300]), Noted("length", 2.0),
    ))  # fmt: skip
    shown = log_text(log).splitlines()
    assert shown[:4] == [
        "  call tools:price('red mug', 2)",
        "    -> 3",
        "  call tools:price()",
        "    -> failed: KeyError: 'x'\\x1b",
    ]
    assert shown[4].startswith("  call tools:echo('xxx")
    assert shown[4].endswith("x … (302 characters))")
    assert shown[5] == "  metric length = 2"


@pytest.mark.slow
def test_an_environment_that_has_changed_is_told_where_its_run_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = (ROOT / "tests/toys.py").read_text()
    (tmp_path / "mine.py").write_text(mine)
    save_model(tiny(scale=2.0), tmp_path / "model")
    sets = (
        "policies.team.model=model",
        "train.steps=1",
        "train.tasks_per_step=1",
        "train.eval_tasks=1",
        "eval.tasks=1",
    )
    assert call("train", "mine.py:Agree", "--out", "run", "--no-test", *(x for s in sets for x in ("--set", s)))[0] == 0
    says = "the environment's files have changed since the run was trained"
    assert says not in call("eval", "run")[2]
    (tmp_path / "mine.py").write_text(mine + "\n# a remark\n")
    for verb in ("eval", "play"):
        code, _, err = call(verb, "run")
        assert (code, says in err) == (0, True)
    (tmp_path / "run" / "about.json").unlink()
    assert call("eval", "run")[0] == 0


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (signal.SIGINT, "interrupted"),
        (signal.SIGTERM, "stopped by SIGTERM"),
        pytest.param(signal.SIGUSR1, "stopped by SIGUSR1", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, "stopped by SIGHUP", marks=pytest.mark.slow),
    ],
)
def test_a_signal_strikes_even_where_what_it_strikes_fails(number, told, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os\n"
        "from tests.toys import Agree\n"
        "class Mine(Agree):\n"
        "    async def play(self, task, scene):\n"
        f"        os.kill(os.getpid(), {number:d})\n"
        "        raise ValueError('a program that Ctrl-C ended too')\n"
    )
    code = (  # whoever runs the tests in the background has it ignored
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from coterie.cli import main; sys.argv = ['coterie', 'check', sys.argv[1]]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "mine.py")], capture_output=True, text=True, cwd=ROOT, check=False
    )
    said = f"checking: play ends, whatever roles say, and raises nothing\n\ncoterie: {told}\n"
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", said)


@pytest.mark.parametrize("after", ["raise ImportError('half')", "raise SystemError('half')"])
def test_what_a_signal_makes_a_half_imported_file_raise_is_no_error_of_its_own(after, tmp_path):
    struck = "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGTERM)\n"
    (tmp_path / "mine.py").write_text(f"{struck}except KeyboardInterrupt:\n    {after} from None\n")
    command = [sys.executable, "-m", "coterie", "check", str(tmp_path / "mine.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (143, "")
    assert done.stderr.endswith("\ncoterie: stopped by SIGTERM\n")
    assert "half" not in done.stderr


def test_a_signal_that_strikes_an_executed_text_has_its_own_exit_code(tmp_path):
    (tmp_path / "mine.py").write_text("exec('import os, signal; os.kill(os.getpid(), signal.SIGTERM)')\n")
    command = [sys.executable, "-m", "coterie", "check", str(tmp_path / "mine.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "\ncoterie: stopped by SIGTERM\n")


@pytest.mark.parametrize(
    ("where", "raises"),
    [
        ("sys.modules['typer.main'].get_command_from_info", "raise"),  # while the options of commands are looked at
        ("coterie.registry.summary", "raise ImportError('cannot load module more than once') from None"),
    ],
)
def test_ctrl_c_outside_of_commands_or_in_an_import_is_one_line(where, raises):
    script = (
        "import signal, sys, coterie.registry, typer; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from coterie.cli import main\n"
        "def struck(*_, **__):\n"
        "    try: signal.raise_signal(signal.SIGINT)\n"
        f"    except KeyboardInterrupt: {raises}\n"
        f"{where} = struck; sys.argv = ['coterie', 'list']; main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\ncoterie: interrupted\n")


def test_a_process_that_is_forked_from_a_command_dies_of_its_signals():
    hook = sys.unraisablehook
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with ended_by([signal.SIGTERM]):
            if not (child := os.fork()):
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)
            assert ENDED_BY.pop() == signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert sys.unraisablehook is hook
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_version_is_told():
    assert call("--version")[:2] == (0, f"{metadata.version('coterie')}\n")


def test_a_person_may_take_a_role(run, monkeypatch):
    monkeypatch.setattr("typer.prompt", lambda *args, **kwargs: "b")
    code, out, _ = call("play", str(run), "--as", "a")
    assert code == 0
    assert "  a: b" in out
    assert "never asked" not in out
    plays = Loaded.play
    monkeypatch.setattr(Loaded, "play", lambda self, split, task, **more: plays(self, split, task))
    assert call("play", str(run), "--as", "a")[1].endswith("a was never asked in this episode\n")


def test_what_a_model_wrote_is_shown_as_text():
    from coterie.kernel.safe import plain

    assert plain("\x1b[2Jhi\u202e\r") == "\\x1b[2Jhi\\x202e\\x0d"


@pytest.mark.slow
def test_list_and_check_for_machines():
    code, out, _ = call("list", "--json")
    assert code == 0
    assert set(json.loads(out)["algorithms"]) == set(ALGORITHMS)
    code, out, _ = call("check", "plan_path", "--tasks", "1", "--json")
    assert code == 0
    assert json.loads(out)["ok"]
    told = "the model was not looked at; does it understand the prompts, has RL a signal? coterie check errand --model "
    assert told in call("check", "errand", "--tasks", "1", "--set", "policies.*.model=a/model")[2]
    code, out, _ = call("check", "tests/broken_envs.py:SetOrder", "--tasks", "1")
    assert code == 1
    assert "FAIL" in out


@pytest.mark.slow
def test_a_dry_run_prints_the_config_and_the_memory_and_writes_nothing(run):
    before = set((run.parent).iterdir())
    code, out, err = call("train", str(run / "config.toml"), "--dry-run")
    assert code == 0
    assert err.splitlines() == [
        "predicting memory and time …", "loading the models …", "sampling 2 tasks …",
        "updating, 1 of 2 …", "updating, 2 of 2 …",
    ]  # fmt: skip
    assert "[train]" in out
    assert "million parameters" in out
    assert set(run.parent.iterdir()) == before


MISTAKES = [
    (["train"], "say what to train"),
    (["train", "plan_paht"], "did you mean 'plan_path'?"),
    (["train", "errand", "--model", "/nowhere/model"], "'/nowhere/model': this folder does not exist; put it back"),
    (["train", "errand", "--model", "./nowhere"], "'./nowhere': this folder does not exist; put it back"),
    (["train", "errand", "--model", "~/nowhere"], "'~/nowhere': this folder does not exist; write /"),
    (["train", "errand", "--model", "https://huggingface.co/a/b"], "a model of the hub is OWNER/NAME"),
    (["train", "errand", "--model", "no/where/at"], "'no/where/at': this folder does not exist; put it back"),
    (["train", "errand", "--model", "none.gguf"], "'none.gguf': this file does not exist; put it back"),
    (["train", "plan_path", "--set", "algorithm.num_generations=1"], "algorithm.num_generations = 1"),
    (["train", "plan_path", "--set", "algorithm.name=nothing"], "unknown algorithm 'nothing'"),
    (["train", "plan_path", "--set", "policies.team.model=/nowhere"], "policies.team.model = '/nowhere'"),
    (["train", "plan_path", "--set", "train.device=cuda"], "no such device"),
    (["train", "nowhere.toml"], "does not exist"),
    (["train", "plan_path", "--out", "EXISTS"], "EXISTS exists"),
    (["train", "plan_path", "--out", "FILE"], "FILE exists; choose another folder with --out\n"),
    (["train", "plan_path", "--resume", "RUN"], "--resume goes on with the run's own config; leave 'plan_path' away"),
    (["train", "--resume", "RUN", "--set", "train.lr=3", "--dry-run"], "unknown key 'train.lr'"),
    (["train", "--resume", "RUN", "--set", "train.seed=3", "--dry-run"], "was run with train.seed = 0, not 3"),
    (["train", "--resume", "RUN", "--set", "train.steps=1", "--dry-run"], "has made 2 already"),
    (["train", "--resume", "EXISTS"], "not a run folder"),
    (["train", "plan_path", "--resume", "RUN", "--out", "x"], "leave --out away"),
    (["train", "plan_path", "--bogus"], "no such option: --bogus"),
    (["train", "--hlep"], "see coterie train --help\n"),
    (["check"], "missing argument 'ENV|CONFIG'; see coterie check --help\n"),
    (["trian"], "see coterie --help\n"),
    (["eval", "nowhere"], "not a run folder"),
    (["eval", "plan_pth"], "plan_pth is not a run folder, and no environment; did you mean 'plan_path'?"),
    (["eval", "RUN", "--set", "train.seed=1"], "--set is for a config, before training"),
    (["eval", "RUN", "--model", "starter"], "--model is for a config, before training"),
    (["eval", "plan_path", "--step", "3"], "--step is for a run; plan_path is a config"),
    (["eval", "plan_path", "--replace", "planner=base"], "--replace is for a run; plan_path is a config"),
    (["eval", "plan_path", "--memory", "off"], "--memory is for a run"),
    (["eval", "plan_path", "--votes", "3"], "--votes is for a run"),
    (["eval", "RUN", "--split", "tset"], "did you mean 'test'?"),
    (["eval", "RUN", "--votes", "0"], "'--votes'"),
    (["play", "RUN", "--split", "tset"], "did you mean 'test'?"),
    (["eval", "RUN", "--step", "77"], "no checkpoint of step 77"),
    (["play", "RUN", "--tree"], "say which with --step; there are 1, 2"),
    (["play", "RUN", "--tree", "--step", "9"], "no episodes of step 9"),
    (["play", "RUN", "--tree", "--step", "1", "--task", "99"], "--task is 0 to 1"),
    (["play", "RUN", "--as", "nobody"], "unknown role 'nobody'"),
    (["report", "RUN", "--out", "."], "--out . is a folder; name a file, such as report.html"),
    (["list", "engins"], "did you mean 'engines'?"),
    (["bench", "dem"], "did you mean 'demo'?"),
    (["sft", "plan_path", "--out", "EXISTS"], "EXISTS exists"),
    (["sft", "tests/toys.py:Sequential", "--out", "new"], "has no demonstrate()"),
    (["check", "plan_path", "--set", "environment.size=99"], "environment.size = 99"),
]


@pytest.mark.slow
def test_the_making_of_a_starter_says_how_far_it_is(tmp_path):
    sets = ["--set", "sft.steps=2", "--set", "sft.tasks_per_step=1"]
    code, out, _ = call("sft", "tally", "--out", str(tmp_path / "made"), *sets)
    assert code == 0
    looks = [line.partition("  ")[0] for line in out.splitlines() if line.startswith("looking")]
    assert looks == [f"looking at what is demonstrated: {done} of 200 tasks" for done in range(20, 201, 20)]
    assert [line.partition("  ")[0] for line in out.splitlines() if line.startswith("step")] == ["step 1/2", "step 2/2"]


def test_benchmarks_are_listed_with_what_they_measure():
    code, out, _ = call("bench")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(BENCHES)
    assert json.loads(call("bench", "--json")[1]) == BENCHES


@pytest.mark.parametrize(
    ("arguments", "says"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_mistake_is_one_line_and_exit_code_2_and_writes_nothing(run, tmp_path, monkeypatch, arguments, says):
    if "cuda" in says or "train.device=cuda" in arguments:
        import torch

        if torch.cuda.is_available():
            pytest.skip("there is a CUDA device here")
    exists = tmp_path / "there"
    exists.mkdir()
    (file := tmp_path / "file").write_text("a file")
    names = {"EXISTS": str(exists), "FILE": str(file), "RUN": str(run)}
    words = [names.get(word, word) for word in arguments]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    before = snapshot(tmp_path), snapshot(run)
    code, out, err = call(*words)
    assert code == 2, err
    assert not out
    assert err.startswith("coterie: ")
    assert err.count("\n") == 1, err
    assert says.replace("EXISTS", str(exists)).replace("FILE", str(file)) in err
    assert (snapshot(tmp_path), snapshot(run)) == before


def snapshot(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(file), file.lstat().st_mtime_ns) for file in folder.rglob("*") if file.name != "lock")


CRASHES = """
import ctypes
from tests.toys import Agree

class Crashes(Agree):
    async def play(self, task, scene):
        ctypes.string_at(0)
"""


@pytest.mark.slow
def test_a_crash_in_play_names_its_place(tmp_path):
    (tmp_path / "crashes.py").write_text(CRASHES)
    command = [sys.executable, "-m", "coterie.cli", "check", f"{tmp_path}/crashes.py:Crashes"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV
    assert "Segmentation fault" in done.stderr
    assert f'File "{tmp_path}/crashes.py", line 7 in play' in done.stderr


@pytest.mark.slow
def test_too_few_open_files_are_one_line(tmp_path):
    command = f"ulimit -n 8; exec {sys.executable} -m coterie.cli train tally --out {tmp_path}/run"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "coterie: this process may open no more files (see ulimit -n); raise it: ulimit -n 1024\n"


def test_a_lack_of_memory_is_one_line(monkeypatch):
    def lacks(kind):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr("coterie.registry.summary", lacks)
    code, _, err = call("list")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("coterie: there is not enough memory: DefaultCPUAllocator")
    assert "coterie plan CONFIG" in err


def test_a_bug_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("coterie.registry.summary", lambda kind: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        call("list")


@pytest.mark.slow
def test_a_bug_of_play_is_shown_from_play_on(run, tmp_path):
    world = tmp_path / "buggy.py"
    world.write_text(
        "from tests.toys import Agree\n\n\nclass Buggy(Agree):\n    async def play(self, task, scene):\n"
        "        await scene.ask('a', 'pick', max_tokens=1)\n"
        "        return {}['nothing'] if task.id > 'validation-4' else None\n"
    )
    model = f"policies.team.model={run.parent / 'model'}"
    command = ["train", f"{world}:Buggy", "--out", str(tmp_path / "run"), "--set", model, "--set", "train.eval_tasks=6"]
    done = subprocess.run(
        [sys.executable, "-m", "coterie.cli", *command], capture_output=True, text=True, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count('  File "') == 1, done.stderr
    assert f"coterie: play of task validation-5 raised KeyError: 'nothing' ({world}:7)" in done.stderr
    assert f"coterie play {tmp_path / 'run'} --bug" in done.stderr


def test_a_finished_run_says_how_it_is_given_more_steps(run):
    code, out, _ = call("train", "--resume", str(run), "--no-test")
    assert code == 0
    assert f"all its 2 steps were made before; for more: coterie train --resume {run} --set train.steps=4" in out


def test_output_is_plain_without_a_terminal_or_utf8(run):
    env = os.environ | {"PYTHONIOENCODING": "ascii", "NO_COLOR": "1", "COLUMNS": "40"}
    command = [sys.executable, "-m", "coterie.cli", "play", str(run), "--step", "1", "--tree"]
    done = subprocess.run(command, check=True, capture_output=True, env=env)
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("module", "function", "line"),
    [
        ("coterie.run.train", "train", ["train", "plan_path", "--out"]),
        ("coterie.run.sft", "sft", ["sft", "plan_path", "--out"]),
        ("coterie.bench", "run_bench", ["bench", "demo"]),
    ],
)
def test_ctrl_c_is_one_line_that_says_how_to_go_on(tmp_path, monkeypatch, module, function, line):
    def stop(*args, **kwargs):
        raise Stop("stopped after step 3; go on with: coterie train --resume X", signal.SIGINT, save=False)

    monkeypatch.setattr(importlib.import_module(module), function, stop)
    code, _, err = call(*line, *([str(tmp_path / "x")] if line[-1] == "--out" else []))
    assert code == 130
    assert err.strip() == "coterie: stopped after step 3; go on with: coterie train --resume X"


def test_ctrl_c_elsewhere_leaves_quietly(monkeypatch):
    def stop(kind):
        raise KeyboardInterrupt

    monkeypatch.setattr("coterie.registry.summary", stop)
    code, _, err = call("list")
    assert (code, err.strip()) == (130, "coterie: interrupted")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["list"], ["list", "--json"]])
def test_a_full_output_is_one_line_and_a_closed_one_none(words):
    command = [sys.executable, "-m", "coterie.cli", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("coterie: the output could not be written: No space left on device")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_what_ctrl_c_became_while_a_library_was_imported_is_still_ctrl_c():
    def imported():
        try:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt as error:
                raise RuntimeError("half imported") from error
        except RuntimeError as error:
            raise ModuleNotFoundError("could not import it") from error

    with pytest.raises(ModuleNotFoundError) as caught:
        imported()
    assert stopped(caught.value)
    assert not stopped(ValueError("of its own"))


def test_a_working_folder_that_was_removed_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert call("list") == (2, "", "coterie: the working folder is gone: change to one that exists\n")
