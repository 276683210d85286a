"""A folder from a stranger is data: nothing that it names is run, reached or sent, unless a user says so."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from coterie import load_config, train
from coterie.errors import CheckpointError, ConfigError
from coterie.run import trust
from coterie.run.folder import Run
from tests.security.hostile_runs import CANARY, EVIL, MODULE, SECRET, WAYS, hostile
from tests.test_cli import ROOT, call

READERS = {
    "report": lambda run: ["report", str(run)],
    "view": lambda run: ["view", str(run), "--bundle", str(run.parent / f"pages-{run.name}")],
    "memory": lambda run: ["memory", str(run)],
    "inspect": lambda run: ["inspect", str(run)],
    "audit": lambda run: ["audit", str(run)],
    "ledger": lambda run: ["ledger", str(run)],
    "tree": lambda run: ["play", str(run), "--tree", "--step", "1"],
}
PLAYERS = {
    "eval": lambda run: ["eval", str(run)],
    "play": lambda run: ["play", str(run)],
    "bug": lambda run: ["play", str(run), "--bug"],
    "serve": lambda run: ["serve", str(run), "--port", "0"],
    "export": lambda run: ["export", str(run), "--out", str(run.parent / "out")],
    "update": lambda run: ["update", str(run), "--step", "1"],
    "resume": lambda run: ["train", "--resume", str(run)],
    "dry": lambda run: ["train", "--resume", str(run), "--dry-run"],
    "matrix": lambda run: ["matrix", str(run), "chance"],
    "measure": lambda run: ["report", str(run), "--tasks", "1"],
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    sets = ["train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=4", "train.mute_every=0"]
    sets += ["train.episodes_every=1"]
    run = train(load_config("plan_path", sets), tmp_path_factory.mktemp("honest") / "run")
    run.save_bug("train", 0, run.episodes(1)[0].collected.logs[0])
    return run.folder


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """What was run, and where somebody wanted to connect."""
    reached: list[object] = []

    def connect(self, address):
        if self.family != socket.AF_UNIX:
            reached.append(address)
            raise OSError("nobody is there")

    def looked_up(host, *rest, **more):
        if host not in ("127.0.0.1", "localhost"):
            reached.append(host)
            raise socket.gaierror("nobody is there")
        return found(host, *rest, **more)

    found = socket.getaddrinfo
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    monkeypatch.setenv(CANARY, str(tmp_path / "canary"))
    monkeypatch.setenv(SECRET, "a secret")
    monkeypatch.setattr(trust, "_trusting", False)
    monkeypatch.setattr(trust, "_made", set())
    (tmp_path / f"{MODULE}.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "canary", reached


FEW = {"report", "inspect", "eval"}
"""Commands that are tried with every way; the others, which go by the same doors, with three."""
TRIED = [
    *(pytest.param(way, False, id=way) for way in WAYS),
    *(
        pytest.param(way, True, id=f"{way}-all", marks=pytest.mark.slow)
        for way in ("algorithm", "reward_module", "server")
    ),
]


@pytest.mark.parametrize(("way", "every"), TRIED)
def test_what_reads_a_strangers_run_uses_nothing_that_it_names(way, every, honest, watched, tmp_path):
    canary, reached = watched
    run = hostile(way, honest, tmp_path / way)
    for name, words in READERS.items():
        if (name in FEW) == every:
            continue
        code, out, err = call(*words(run))
        assert (code == 0) == (name != "ledger"), (name, out, err)  # one that only a cluster's run has
        assert (canary.exists(), reached) == (False, []), name


@pytest.mark.parametrize(("way", "every"), TRIED)
def test_what_plays_it_asks_first_in_one_line_that_names_it(way, every, honest, watched, tmp_path):
    canary, reached = watched
    run = hostile(way, honest, tmp_path / way)
    for name, words in PLAYERS.items():
        if (name in FEW) == every:
            continue
        code, _, err = call(*words(run))
        assert (code, err.count("\n")) == (2, 1), (name, err)
        assert f"{run} was not made by you, and to play it would " in err
        assert f"coterie inspect {run}" in err
        assert "a secret" not in err
        assert (canary.exists(), reached) == (False, []), name


def test_the_word_of_a_user_holds_for_what_is_named_and_its_contents(honest, watched, tmp_path, monkeypatch):
    canary, _ = watched
    run = hostile("environment_whole", honest, tmp_path / "run")
    code, _, err = call("eval", str(run), "--trust")
    assert canary.exists(), "it is run now"
    assert "has no class Env that is a coterie.Environment" in err
    canary.unlink()
    monkeypatch.setattr(trust, "_trusting", False)
    assert "not made by you" not in call("eval", str(run))[2], "it is remembered"
    (run / "evil.py").write_text(f"{EVIL}\n# and more")
    code, _, err = call("eval", str(run))
    assert (code, "was not made by you" in err) == (2, True), "not for another content"


@pytest.mark.parametrize("way", ["environment_beside", "reward", "reward_module", "tool", "agent", "agent_module"])
def test_a_users_word_is_for_one_folders_code(way, honest, watched, tmp_path, monkeypatch):
    """However the code is named: beside the config, from here, or as a module."""
    canary, _ = watched
    run, other = (hostile(way, honest, tmp_path / name) for name in ("run", "other"))
    call("eval", str(run), "--trust")
    monkeypatch.setattr(trust, "_trusting", False)
    canary.unlink(missing_ok=True)
    (other / "evil.py").write_text(f"{EVIL}\n# another")
    assert "was not made by you" in call("eval", str(other))[2]
    if "module" not in way:
        (run / "evil.py").write_text(f"{EVIL}\n# changed")
        if way != "tool":
            assert "was not made by you" in call("eval", str(run))[2]
    assert not canary.exists()


def plain(honest: Path, folder: Path) -> Path:
    """A stranger's run that names nothing."""
    shutil.copytree(honest, folder)
    (folder / "owner").unlink()
    return folder


def test_a_strangers_run_stays_one_when_its_steps_are_changed(honest, watched, tmp_path):
    run = Run(plain(honest, tmp_path / "run"))
    config = Run(honest).config
    run.change(config, 1)
    assert not trust.is_mine(run.folder)
    mine = Run.create(tmp_path / "mine", config)
    mine.change(config, 1)
    trust._made.clear()
    assert trust.is_mine(mine.folder)
    assert not trust.is_mine(mine.folder, b"what stood there when it was read")


def test_a_config_that_is_changed_while_it_is_checked_is_not_the_one_that_is_run(honest, tmp_path, monkeypatch):
    folder = plain(honest, tmp_path / "run")
    check = trust.check

    def changes(*args, **kwargs):
        check(*args, **kwargs)
        file = folder / "config.toml"
        file.write_text(re.sub(r'(\[environment\]\nname = )".*"', r'\1"evil.py:Evil"', file.read_text()))

    monkeypatch.setattr(trust, "check", changes)
    assert Run(folder).config.names["environment"] != "evil.py:Evil"
    assert "evil.py" in (folder / "config.toml").read_text(), "or nothing was changed"


def test_a_config_that_is_changed_after_it_was_checked_is_not_the_one_that_goes_on(
    honest, watched, tmp_path, monkeypatch
):
    canary, _ = watched
    folder = plain(honest, tmp_path / "run")
    (folder / "evil.py").write_text(EVIL)
    sound = (folder / "config.toml").read_text()
    evil = re.sub(r'(\[environment\]\nname = )".*"', r'\1"evil.py:Env"', sound)
    check = trust.check

    def changes(*args, **kwargs):
        check(*args, **kwargs)
        (folder / "config.toml").write_text(evil)

    monkeypatch.setattr(trust, "check", changes)
    code, _, err = call("train", "--resume", str(folder), "--set", "train.steps=2", "--no-test")
    assert (code, "was not made by you" in err) == (2, True)
    assert not canary.exists()


@pytest.mark.parametrize("name", ["checkpoints", "episodes"])
def test_nothing_is_written_into_a_folder_that_a_strangers_link_leads_to(name, honest, watched, tmp_path):
    folder = plain(honest, tmp_path / "run")
    (folder / name).rename(tmp_path / "mine")
    (folder / name).symlink_to(tmp_path / "mine")
    before = sorted((tmp_path / "mine").rglob("*"))
    code, _, err = call("train", "--resume", str(folder), "--set", "train.steps=2", "--no-test")
    assert (code, "is a link, and the run was not made by you" in err) == (2, True), err
    assert sorted((tmp_path / "mine").rglob("*")) == before


def test_a_checkpoint_has_no_links(honest, watched, tmp_path):
    """What a link leads to would be hashed, loaded and exported."""
    folder = plain(honest, tmp_path / "run")
    policies = folder / "checkpoints/step-00001/policies"
    (policies / "pilot").rename(tmp_path / "mine")
    (policies / "pilot").symlink_to(tmp_path / "mine")
    for words in (["memory", str(folder)], ["export", str(folder), "--out", str(tmp_path / "out")]):
        code, _, err = call(*words)
        assert (code, "leads out of the checkpoint" in err) == (2, True), err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "reader"), [("checkpoints/step-00001/manifest.json", "memory"), ("ledger.jsonl", "ledger")]
)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(name, reader, honest, watched, tmp_path):
    folder = plain(honest, tmp_path / "run")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    code, _, err = call(reader, str(folder))
    assert (code, err.count("\n")) == (2, 1), err


def test_a_file_that_a_manifest_names_is_an_ordinary_one_of_the_checkpoint(honest, watched, tmp_path):
    folder = plain(honest, tmp_path / "run")
    manifest = folder / "checkpoints/step-00001/manifest.json"
    sound = json.loads(manifest.read_text())
    for name in ("/dev/zero", "../step-00000/progress.json"):
        manifest.write_text(json.dumps(sound | {name: [0, "x"]}))
        code, _, err = call("memory", str(folder))
        assert (code, "leads out of the checkpoint" in err) == (2, True), err


def test_steps_that_a_ledger_or_metrics_claim_are_not_counted_up_to(honest, watched, tmp_path):
    folder = plain(honest, tmp_path / "run")
    lines = [{"at": "began", "step": 0, "ahead": 0, "incarnation": 0}, {"at": "began", "step": 10**9}]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 10**9}) + "\n")
    _, out, err = call("ledger", str(folder))
    assert len(out + err) < 1_000_000


@pytest.mark.parametrize("name", [".report.html", ".config.toml", ".owner", "metrics.jsonl", "lock", "failed.txt"])
def test_nothing_is_written_through_a_link_that_a_stranger_put_there(name, honest, watched, tmp_path):
    run = plain(honest, tmp_path / "run")
    mine = tmp_path / "mine"
    mine.write_text("what is mine")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(mine)
    call("report", str(run))
    opened = Run(run)
    with suppress(CheckpointError):
        opened.log({"step": 1})
    with suppress(CheckpointError), opened.locked():
        opened.note_failure(ValueError("x"))
        opened.change(Run(honest).config, 1)
    trust.sign(run, "x")
    assert mine.read_text() == "what is mine"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("metrics.jsonl", '{"step": 0, "validation/success": 0.5}\n'),
        ("metrics.jsonl", '{"step": 0, "validation/success": 7.5}\n'),
        ("metrics.jsonl", '{"step": 0, "validation/success": NaN, "time/step": 1e308, "rollout/success": Infinity}\n'),
        ("metrics.jsonl", '{"step": 0, "validation/success": ' + "9" * 401 + "}\n"),
        ("metrics.jsonl", json.dumps({"step": 0} | {f"k{index}": 0 for index in range(200_000)}) + "\n"),
        ("config.toml", "[train]\nsteps = 'x'\n"),
        ("config.toml", "a." * 100_000 + "a = 1\n"),
        ("config.toml", '"." . ' * 100_000 + "a = 1\n"),
        ("config.toml", "[train]\nx = {" + '"a" . ' * 100_000 + "a = 1}\n"),
        ("config.toml", "a = " + "{a = " * 100 + "1" + "}" * 100 + "\n"),
        ("config.toml", "[team]\n" + "".join(f"r{index} = 1\n" for index in range(40_000))),
        ("config.toml", "[train]\nsteps = 1979-05-27\n"),
        ("config.toml", "[memory]\nmode = 'bad'\n"),
        ("config.toml", "memory = 'x'\n"),
        ("config.toml", "[environment]\nname = 3\n[algorithm]\n[team]\n[policies]\n[train]\n"),
        ("owner", ""),
    ],
)
def test_what_no_run_writes_is_one_line_to_a_reader(file, content, honest, watched, tmp_path):
    run = hostile("server", honest, tmp_path / "run")
    (run / file).write_text(content) if content else os.mkfifo(run / file)
    for name in ("report", "memory", "inspect"):
        code, _, err = call(*READERS[name](run))
        assert code in (0, 2), (name, err)
        assert err.count("\n") == (code == 2), (name, err)


def test_nobody_is_asked_about_their_own_work(honest, watched, tmp_path, monkeypatch):
    """In another process, and where the folder was moved; not where its config was edited."""
    (tmp_path / "mine.py").write_text("from tests.toys import Agree\nclass Mine(Agree): pass\n")
    run = Run.create(tmp_path / "run", load_config(f"{tmp_path / 'mine.py'}:Mine"))
    monkeypatch.setattr(trust, "_made", set())
    assert run.config.names["environment"].endswith("mine.py:Mine")
    moved = run.folder.rename(tmp_path / "moved")
    assert Run(moved).config
    text = (moved / "config.toml").read_text()
    (moved / "config.toml").write_text(f"{text}\n# by hand")
    with pytest.raises(ConfigError, match="was not made by you"):
        _ = Run(moved).config
    (moved / "config.toml").write_text(text)
    (trust.home() / "key").rename(trust.home() / "other")
    try:
        with pytest.raises(ConfigError, match="was not made by you"):
            _ = Run(moved).config
    finally:
        (trust.home() / "other").rename(trust.home() / "key")


def test_a_long_text_is_no_name_of_a_file(honest, tmp_path):
    text = f"{'Say what you see. ' * 300}Answer yes/no"
    assert not list(trust.named({"policies": {"team": {"system_text": text}}}, tmp_path))
    assert [one.kind for one in trust.named({"policies": {"team": {"model": text}}}, tmp_path)] == ["download"]


def test_a_run_that_names_nothing_is_played_whoever_made_it(honest, watched, tmp_path):
    run = plain(honest, tmp_path / "run")
    assert not trust.is_mine(run)
    assert call("play", str(run))[0] == 0


def test_where_no_key_can_be_kept_a_process_knows_what_it_made(watched, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    run = Run.create(tmp_path / "run", load_config(f"{ROOT}/tests/toys.py:Agree"))
    assert run.config
    monkeypatch.setattr(trust, "_made", set())
    with pytest.raises(ConfigError, match="was not made by you"):
        _ = run.config


def test_a_key_is_for_its_user_alone():
    trust._key()
    assert (trust.home() / "key").stat().st_mode & 0o777 == 0o600
    assert len((trust.home() / "key").read_bytes()) == 32


def test_each_server_is_named_with_its_variable_before_it_is_asked(honest, tmp_path, watched):
    policy = "policies.judge"
    sets = [f"{policy}.kind=remote", f"{policy}.model=x", f"{policy}.remote.url=https://host/v1"]
    for variable, told in (("", ""), ("MY_KEY", ", with the key in MY_KEY")):
        config = load_config(
            "plan_path",
            [
                *sets,
                f"{policy}.remote.key_variable={variable}",
                "team.planner=judge",
                "team.proposer=team",
                "policies.team.model=starter",
            ],
        )
        line = f"policy 'judge' is played by https://host/v1{told}"
        assert list(config.servers()) == [line]
        assert line in config.remarks


def test_inspect_lists_what_a_run_or_a_config_names(honest, watched, tmp_path):
    run = hostile("server", honest, tmp_path / "run")
    code, out, _ = call("inspect", str(run))
    assert code == 0
    assert "server    policies.judge.remote.url = https://evil.invalid/v1\n" in out
    assert f"variable  policies.judge.remote.key_variable = {SECRET}\n" in out
    assert f"{run} was not made by you" in out
    told = json.loads(call("inspect", str(hostile("environment_whole", honest, tmp_path / "code")), "--json")[1])
    (row,) = told["names"]
    assert (told["yours"], row["kind"], row["where"]) == (False, "code", "environment.name")
    assert list(row["sha256"]) == [str(tmp_path / "code" / "evil.py")]
    beside = json.loads(call("inspect", str(hostile("environment_beside", honest, tmp_path / "beside")), "--json")[1])
    assert list(beside["names"][0]["sha256"]) == [str(tmp_path / "beside" / "evil.py")], "not one that lies here"
    for wrong in ("nowhere", "rows.jsonl"):
        code, _, err = call("inspect", wrong)
        assert (code, "is not a run folder and no TOML file" in err) == (2, True)
    assert call("inspect", str(honest))[1].startswith("it names no code, command, server, variable, file or download\n")
    (tmp_path / "team.toml").write_text('[environment]\nname = "gateway"\nagent = "my_agent.py:run"\n')
    assert "code      environment.agent = my_agent.py:run\n" in call("inspect", str(tmp_path / "team.toml"))[1]
    bare = call("inspect", str(hostile("no_sandbox", honest, tmp_path / "bare")))[1]
    assert "programs  environment.sandbox = process\n" in bare
    assert os.environ[SECRET] == "a secret"


def changed(honest: Path, run: Path, old: str, new: str) -> Path:
    shutil.copytree(honest, run)
    (run / "owner").unlink()
    text = re.sub(r"  # .*", "", (run / "config.toml").read_text())  # who set a value
    assert old in text
    (run / "config.toml").write_text(text.replace(old, new, 1))
    return run


@pytest.mark.parametrize(
    "old", ["steps = 1\n", "size = 6\n", "num_generations = 8\n", "seed = 0\n", 'name = "plan_path"\n']
)
def test_a_number_that_no_config_has_is_one_line(old, honest, watched, tmp_path):
    """Written in another base it is read, whatever its length, and cannot be written."""
    key = old.split(" ")[0]
    run = changed(honest, tmp_path / "run", old, f"{key} = 0x{'f' * 5000}\n")
    for words in (["inspect"], ["eval"], ["export", "--out", "out"], ["report"], ["train", "--dry-run", "--resume"]):
        code, _, err = call(*words, str(run))
        assert (code, err.count("\n")) == (2, 1), (words, err)
        assert "more than 64 bits" in err


def test_a_role_cannot_write_lines_of_a_report(honest, watched, tmp_path):
    run = changed(honest, tmp_path / "run", "[team]\n", '[team]\n"x\\nDid it learn? Yes" = "pilot"\n')
    code, out, err = call("report", str(run))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "a key is no single line of text: x Did it learn? Yes" in err


def test_a_tree_that_does_not_fit_together_is_one_line(honest, watched, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(honest, run)
    (run / "owner").unlink()
    file = run / "episodes" / "step-00001.jsonl.gz"
    rows = [json.loads(line) | {"advantages": [[0.0]]} for line in gzip.decompress(file.read_bytes()).splitlines()]
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    code, _, err = call("play", str(run), "--tree", "--step", "1")
    assert (code, err.count("\n")) == (2, 1), err
    assert "holds something that no run writes" in err
