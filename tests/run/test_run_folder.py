"""The run folder alone: what is written, read back and refused, with nothing trained."""

import errno
import fcntl
import gzip
import hashlib
import importlib
import json
import linecache
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.config.resolve import load_config
from coterie.errors import CheckpointError
from coterie.kernel.cursor import Cursor
from coterie.kernel.episode import Asked
from coterie.kernel.group import Collected
from coterie.run import checkpoints
from coterie.run.exactness import _content, _imported, _source, exactness
from coterie.run.files import check_free, fingerprint_of, new_folder, whole, write_whole
from coterie.run.folder import Run
from coterie.run.records import Played, Progress
from tests.toys import Agree, Toy, run

EXACT = {"threads": "1", "policy x": "abc"}


def config(*more: str):
    return load_config("tests/toys.py:Agree", ["train.steps=4", *more])


@pytest.fixture
def made(tmp_path) -> Run:
    return Run.create(tmp_path / "run", config(), EXACT)


def weights(text: str = "w"):
    def write(folder: Path) -> None:
        (folder / "optimizers").mkdir()
        (folder / "optimizers/weights").write_text(text)

    return write


def saved(run: Run, *steps: int, keep: int = 9, **progress) -> Run:
    for step in steps:
        run.checkpoints.save(Progress(step=step, **progress), weights(str(step)), keep=keep)
    return run


def about(run: Run) -> dict:
    return json.loads((run.folder / "about.json").read_text())


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_new_run_says_how_it_was_made_and_nothing_is_left_aside(made, monkeypatch):
    assert names(made.folder.parent) == {"run"}
    assert names(made.folder) == {"config.toml", "about.json", "owner"}
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700, "what was asked and said is its user's"
    first, blank, *rest = (made.folder / "config.toml").read_text().split("\n")
    assert first == f"# coterie train {made.folder}/config.toml"
    assert blank == ""
    assert "\n".join(rest) == config().explained()
    assert made.config.tables() == config().tables()
    told = about(made)
    assert told["exact"] == EXACT
    assert told["seed"] == 0
    assert told["command"] == [Path(sys.argv[0]).name, *sys.argv[1:]]
    assert told["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert set(told["versions"]) == {"python", "coterie", "torch", "transformers", "tokenizers", "pydantic", "numpy"}
    assert told["hardware"]["cores"] == os.cpu_count()
    assert set(told["hardware"]) == {"machine", "cores", "system"}
    assert all(told["hardware"].values())
    assert told["isolation"] is None
    assert "commit" in told


def test_about_knows_the_commit_where_there_is_git(tmp_path, monkeypatch):
    asked = []

    def git(command, **settings):
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, "abc123\n" if settings.get("text") else b"", "")

    monkeypatch.setattr(subprocess, "run", git)
    assert about(Run.create(tmp_path / "here", config()))["commit"] == "abc123"
    assert asked == [["git", "rev-parse", "HEAD"]]

    def none(*args, **settings):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", none)
    assert about(Run.create(tmp_path / "none", config()))["commit"] is None
    assert about(Run.create(tmp_path / "code", load_config("code")))["isolation"].startswith("bubblewrap; ")


def test_a_folder_that_is_there_is_refused_and_stays(made):
    before = (made.folder / "config.toml").read_bytes()
    with pytest.raises(CheckpointError, match=r"run exists; .* --out; it has no checkpoint, so .* remove it$"):
        Run.create(made.folder, config("train.steps=9"))
    (made.folder / "checkpoints/step-00000").mkdir(parents=True)
    with pytest.raises(
        CheckpointError, match=r"run exists; choose .* --out, or go on with: coterie train --resume \S+run$"
    ):
        Run.create(made.folder, config("train.steps=9"))
    assert (made.folder / "config.toml").read_bytes() == before


def test_a_folder_that_cannot_be_made_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"run could not be written: Not a directory; choose another .* --out$"):
        Run.create(tmp_path / "file/run", config())
    write = Path.write_text
    for full in ("config.toml", "about.json"):

        def writes(file, text, full=full, **how):
            write(file, text[:9], **how)
            if file.name == full:
                raise OSError(errno.ENOSPC, "No space left")

        monkeypatch.setattr(Path, "write_text", writes)
        with pytest.raises(
            CheckpointError, match=r"deep/run could not be written: No space left; make room and choose .* --out$"
        ):
            Run.create(tmp_path / "deep/run", config())
        assert names(tmp_path / "deep") == set()


def test_metrics_that_are_removed_while_a_run_goes_on_are_told(made, capfd):
    for step in range(4):
        if step == 2:
            (made.folder / "metrics.jsonl").unlink()
        made.log({"step": step})
    said = f"{made.folder}/metrics.jsonl was removed while the run went on"
    assert [line for line in capfd.readouterr().err.splitlines() if line] == [
        f"coterie: {said}: what it said of the steps before this one is lost"
    ]
    assert [line["step"] for line in made.metrics()] == [2, 3]


def test_only_a_folder_with_a_config_is_a_run(made, tmp_path):
    assert Run.open(made.folder).folder == made.folder
    with pytest.raises(CheckpointError, match=r"is not a run folder \(config.toml is missing\)"):
        Run.open(tmp_path)


def test_a_run_goes_on_exactly_with_what_it_began_with(made):
    before = (made.folder / "about.json").read_bytes()
    made.check_exact(EXACT, 3)
    made.check_exact(EXACT, 3, anyway=True)
    assert (made.folder / "about.json").read_bytes() == before


@pytest.mark.parametrize(
    ("here", "says"),
    [
        ({**EXACT, "threads": "2"}, r"threads 1, here 2; set OMP_NUM_THREADS to that number, or go on all the same"),
        ({"policy x": "abc"}, "threads 1, here unknown; set"),
        (
            {**EXACT, "policy x": "d", "policy y": "e"},
            "x abc, here d; policy y unknown, here e; restore that model, or",
        ),
        (
            {**EXACT, "torch": "9", "device": "cuda"},
            "device unknown, here cuda; install that .* torch, use that device,",
        ),
        ({**EXACT, "ONEDNN_MAX_CPU_ISA": "AVX2"}, "ONEDNN_MAX_CPU_ISA unknown, here AVX2; set that variable so, or"),
        ({**EXACT, "environment": "d"}, "restore its file, or"),
        ({**EXACT, "algorithm": "d"}, "restore its file, or"),
        ({**EXACT, "config": "d"}, r"restore config\.toml, or"),
    ],
)
def test_what_differs_is_named_with_what_mends_it(made, here, says):
    with pytest.raises(CheckpointError, match=says) as caught:
        made.check_exact(here, 3)
    assert str(caught.value).startswith(f"{made.folder} cannot go on exactly: it was run with ")
    assert str(caught.value).endswith("--anyway")
    assert "went_on_anyway" not in about(made)


def test_going_on_anyway_is_written_each_time(made):
    made.check_exact({**EXACT, "threads": "2"}, 3, anyway=True)
    assert about(made)["went_on_anyway"] == [{"step": 3, "differs": {"threads": ["1", "2"]}}]
    made.check_exact({**EXACT, "threads": "2"}, 4)
    made.check_exact(EXACT, 5, anyway=True)
    assert [one["step"] for one in about(made)["went_on_anyway"]] == [3, 5]
    assert about(made)["exact"] == EXACT
    assert about(made)["seed"] == 0


def test_another_number_of_steps_is_written_each_time(made):
    made.change(config("train.steps=6"), 4)
    made.change(config("train.steps=8"), 6)
    assert about(made)["steps_changed"] == [{"step": 4, "from": 4, "to": 6}, {"step": 6, "from": 6, "to": 8}]
    assert made.config.train.steps == 8
    assert "went_on_anyway" not in about(made)
    assert (made.folder / "config.toml").read_text().startswith(f"# coterie train {made.folder}/config.toml\n\n")


def test_a_run_without_its_about_is_one_line(made):
    (made.folder / "about.json").unlink()
    with pytest.raises(CheckpointError, match=r"about.json is missing or damaged; put it back, .* \S+run/checkpoints$"):
        made.check_exact(EXACT, 0)


def test_a_lock_is_held_and_given_back(made):
    with made.locked():
        with pytest.raises(CheckpointError, match="is in use by another process; wait"), Run(made.folder).locked():
            pass
        assert (made.folder / "lock").exists()
    with made.locked():
        pass


# Lines and episodes ----------------------------------------------------------------------------------


def test_metrics_are_lines_and_a_half_written_last_one_is_none(made):
    assert made.metrics() == []
    made.log({"step": 0, "x": 0.5})
    made.log({"step": 1, "x": 2})
    assert (made.folder / "metrics.jsonl").read_text() == '{"step": 0, "x": 0.5}\n{"step": 1, "x": 2}\n'
    with (made.folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "x"')
    assert made.metrics() == [{"step": 0, "x": 0.5}, {"step": 1, "x": 2}]


@pytest.mark.parametrize("line", ['{"x": 1}', "[]", '{"step": "x"}', "{"])
def test_a_damaged_line_is_named_by_its_number(made, line):
    made.log({"step": 0})
    with (made.folder / "metrics.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(CheckpointError, match=r"metrics.jsonl:2 is damaged: .*; remove the line, or put the file back"):
        made.metrics()


def test_what_cannot_be_written_says_how_to_go_on(made):
    (made.folder / "metrics.jsonl").mkdir()
    says = r"metrics.jsonl could not be written: Is a directory; go on with: coterie train --resume \S+run$"
    with pytest.raises(CheckpointError, match=says):
        made.log({"step": 0})


def test_episodes_that_cannot_be_written_say_how_to_go_on(made):
    says = r"step-00001.jsonl.gz could not be written: {}; go on with: coterie train --resume \S+run$"
    (made.folder / "episodes").write_text("")
    with pytest.raises(CheckpointError, match=says.format("File exists")):
        made.save_episodes(1, [])
    (made.folder / "episodes").unlink()
    (made.folder / "episodes/.step-00001.jsonl.gz").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=says.format("Is a directory")):
        made.save_episodes(1, [])


def test_a_folder_that_was_moved_is_not_made_again(made):
    moved = made.folder.with_name("moved")
    made.folder.rename(moved)
    for write in (lambda: made.log({"step": 1}), lambda: saved(made, 1), lambda: made.save_episodes(1, [])):
        with pytest.raises(CheckpointError, match=r"run is gone: .* move it back and go on with: coterie train --res"):
            write()
    assert not made.folder.exists()


def played(index: int = 3) -> Played:
    cursor = Cursor(Agree(), Agree().task("train", index), 5)
    run(cursor.advance())
    return Played("train", index, Collected((), (cursor.log,)), ((0.5, -0.5),))


def test_episodes_come_back_as_they_were_saved(made):
    made.save_episodes(7, [played(3), played(4)])
    made.save_episodes(123456, [])
    assert made.episodes(7) == [played(3), played(4)]
    assert names(made.folder / "episodes") == {"step-00007.jsonl.gz", "step-123456.jsonl.gz"}
    assert made.saved_episodes() == [7, 123456]
    first = (made.folder / "episodes/step-00007.jsonl.gz").read_bytes()
    made.save_episodes(7, [played(3), played(4)])
    assert (made.folder / "episodes/step-00007.jsonl.gz").read_bytes() == first  # no date in it
    assert first[4:8] == b"\0\0\0\0"
    with pytest.raises(CheckpointError, match="has no episodes of step 5; saved: 7, 123456"):
        made.episodes(5)


DAMAGED = {"nothing": b"", "no gzip": b"no gzip", "no task": gzip.compress(b"{}"), "cut": gzip.compress(b"[1]")[:-3]}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_episodes_are_one_line(made, what):
    made.save_episodes(7, [played()])
    (made.folder / "episodes/step-00007.jsonl.gz").write_bytes(DAMAGED[what])
    with pytest.raises(CheckpointError, match=r"step-00007.jsonl.gz is damaged: ") as caught:
        made.episodes(7)
    assert "\n" not in str(caught.value)


class Raises(Toy):
    async def play(self, task, scene) -> None:
        reply = await scene.ask("a", "x")
        raise LookupError(f"{task.id} {reply.text} {scene.rng.random()}")


def test_a_bug_is_kept_and_played_again(tmp_path):
    from coterie.kernel.cursor import PlayBug
    from coterie.kernel.scene import Reply

    made = Run.create(tmp_path / "run", load_config("tests/run/test_run_folder.py:Raises"))
    with pytest.raises(CheckpointError, match=r"run has met no bug in play \(bug.json is missing\)"):
        made.replay_bug()
    cursor = Cursor(Raises(), Raises().task("train", 3), 5)
    run(cursor.advance())
    cursor.answer({"a": Reply("a", "said")})
    with pytest.raises(PlayBug, match="train-3 said") as raised:
        run(cursor.advance())
    made.save_bug("train", 3, cursor.log)
    with pytest.raises(PlayBug) as again:
        made.replay_bug()
    assert str(again.value) == str(raised.value)  # the same chance
    assert any(isinstance(event, Asked) for event in cursor.log.events)
    for text in ("", "[1, 2]", '["train", 3, {}]', "null"):
        (made.folder / "bug.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"bug.json is damaged: ") as caught:
            made.replay_bug()
        assert "\n" not in str(caught.value)


# Checkpoints -----------------------------------------------------------------------------------------


def test_a_checkpoint_comes_back_as_it_was_saved(made):
    progress = Progress(3, {"step": 3, "x": 0.5}, 1, 0.25, {"tokens": 7})
    made.checkpoints.save(progress, weights(), keep=1)
    assert made.checkpoints.steps() == [3]
    with made.checkpoints.reading() as (folder, found):
        assert found == progress
        assert folder == made.checkpoints.path(3) == made.folder / "checkpoints/step-00003"
        assert (folder / "optimizers/weights").read_text() == "w"
    assert names(made.folder / "checkpoints") == {"step-00003"}
    listed = json.loads((folder / "manifest.json").read_text())
    assert set(listed) == {"optimizers/weights", "progress.json"}
    assert listed["optimizers/weights"] == [1, hashlib.sha256(b"w").hexdigest()]


def test_a_run_that_has_not_begun_has_its_start_to_validate():
    assert Progress() == Progress(0, {"step": 0}, -1, -1.0, {})


def test_checkpoints_are_found_by_number_the_latest_and_the_best(made):
    saved(made, 0, 2, best_step=-1)
    for wanted, step in (("latest", 2), (0, 0), (2, 2), ("best", 2)):
        with made.checkpoints.reading(wanted) as (folder, progress):
            assert (progress.step, folder.name) == (step, f"step-{step:05d}")
    saved(made, 4, best_step=0)
    with made.checkpoints.reading("best") as (_, progress):
        assert progress.step == 0
    with made.checkpoints.reading() as (_, progress):
        assert progress.step == 4
    with (
        pytest.raises(CheckpointError, match=r"has no checkpoint of step 3; there are 0, 2, 4$"),
        made.checkpoints.reading(3),
    ):
        pass


@pytest.mark.parametrize("wanted", ["latest", "best"])
def test_a_run_without_a_checkpoint_says_so(made, wanted):
    says = "has no checkpoint; it has none yet; wait for its first"
    with pytest.raises(CheckpointError, match=says), made.checkpoints.reading(wanted):
        pass
    with (
        pytest.raises(CheckpointError, match="has no checkpoint of step 1; it has none yet"),
        made.checkpoints.reading(1),
    ):
        pass


def test_a_run_whose_checkpoints_were_removed_says_so(made):
    saved(made, 0, 1)
    for folder in (made.folder / "checkpoints").iterdir():
        shutil.rmtree(folder)
    with (
        pytest.raises(CheckpointError, match=r"has no checkpoint; they are gone; put them back$"),
        made.checkpoints.reading(),
    ):
        pass


def test_a_folder_that_nothing_is_said_of_is_no_step_that_was_made(made):
    saved(made, 0, 1)
    (made.folder / "checkpoints/step-00009").mkdir()
    with pytest.raises(CheckpointError, match=r"step-00009/manifest\.json is missing; use --step 1 to look at another"):
        made.check_goes_on(made.config)


def test_the_latest_the_start_and_the_best_are_kept(made):
    saved(made, 0, 1, 2, 3, 4, 5, keep=2, best_step=1)
    assert made.checkpoints.steps() == [0, 1, 4, 5]
    saved(made, 6, keep=1, best_step=6)
    assert made.checkpoints.steps() == [0, 6]
    assert names(made.folder / "checkpoints") == {"step-00000", "step-00006"}


def test_a_checkpoint_is_written_again_in_its_place(made):
    saved(made, 1)
    (made.folder / "checkpoints/.step-00001/old").mkdir(parents=True)
    made.checkpoints.save(Progress(step=1, best_step=1), weights("new"), keep=1)
    with made.checkpoints.reading(1) as (folder, progress):
        assert (progress.best_step, (folder / "optimizers/weights").read_text()) == (1, "new")
        assert names(folder) == {"optimizers", "progress.json", "manifest.json"}
    assert names(made.folder / "checkpoints") == {"step-00001"}


def test_a_checkpoint_that_is_read_stays_until_it_is_let_go(made):
    saved(made, 1)
    with made.checkpoints.reading(1):
        saved(made, 2, keep=1)
        assert made.checkpoints.steps() == [1, 2]
    with made.checkpoints.reading(1), made.checkpoints.reading(1):  # readers do not keep each other out
        pass
    saved(made, 3, keep=1)
    assert made.checkpoints.steps() == [3]


def test_a_checkpoint_that_cannot_be_written_is_not_there(made):
    def full(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError(errno.ENOSPC, "No space left on device")

    says = r"step-00001 could not be written: No space left on device; make room and go on with: coterie train --resume"
    with pytest.raises(CheckpointError, match=says):
        made.checkpoints.save(Progress(step=1), full, keep=1)
    assert names(made.folder / "checkpoints") == set()


def test_everything_is_on_the_disk_before_it_has_its_name(made, monkeypatch):
    flushed, renamed, flush, rename = [], [], os.fsync, Path.rename
    by_handle = lambda handle: Path(f"/proc/self/fd/{handle}").readlink()  # noqa: E731
    monkeypatch.setattr(os, "fsync", lambda handle: (flushed.append(by_handle(handle)), flush(handle)))
    monkeypatch.setattr(
        Path, "rename", lambda path, to: (renamed.append((path.name, len(flushed))), rename(path, to))[1]
    )
    saved(made, 1)
    aside = made.folder / "checkpoints/.step-00001"
    written = {aside, aside / "manifest.json", aside / "progress.json", aside / "optimizers/weights"}
    assert written <= set(flushed[:-1])
    assert renamed == [(".step-00001", len(flushed) - 1)]
    assert flushed[-1] == made.folder / "checkpoints"
    flushed.clear()
    write_whole(made.folder / "file", "x", "do this")
    assert flushed == [made.folder / ".file"]


@pytest.mark.parametrize("killed", [True, False])
def test_a_checkpoint_that_was_being_replaced_is_put_back_where_it_is_missing(made, killed):
    saved(made, 1, 2)
    folder = made.checkpoints.path(2)
    shutil.copytree(folder, folder.with_name(".replaced-step-00002"))
    if killed:
        shutil.rmtree(folder)
    made.checkpoints.recover()
    assert names(folder.parent) == {"step-00001", "step-00002"}
    with made.checkpoints.reading(2) as (_, progress):
        assert progress.step == 2


def damaged(run: Run, what: str) -> None:
    folder = run.checkpoints.path(2)
    if what == "cut":
        (folder / "optimizers/weights").write_text("")
    elif what == "changed":
        (folder / "optimizers/weights").write_text("3")
    elif what == "gone":
        (folder / "optimizers/weights").unlink()
    elif what == "no manifest":
        (folder / "manifest.json").unlink()
    elif what == "empty manifest":
        (folder / "manifest.json").write_text("{}")
    elif what == "half a manifest":
        (folder / "manifest.json").write_text('{"pro')
    else:
        (folder / "progress.json").write_text("[]")
        listed = json.loads((folder / "manifest.json").read_text())
        listed["progress.json"] = fingerprint_of(folder / "progress.json")
        (folder / "manifest.json").write_text(json.dumps(listed))


DAMAGES = {
    "cut": "step-00002/optimizers/weights is cut or changed",
    "changed": "step-00002/optimizers/weights is cut or changed",
    "gone": "step-00002/optimizers/weights is missing",
    "no manifest": "step-00002/manifest.json is missing",
    "empty manifest": "step-00002/manifest.json does not list its files",
    "half a manifest": "step-00002 is damaged",
    "no progress": "step-00002 is damaged",
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_checkpoint_says_what_and_how_to_go_on(made, what):
    saved(made, 2)
    damaged(made, what)
    with (
        pytest.raises(CheckpointError, match=f"{DAMAGES[what]}; put it back from a copy, or start"),
        made.checkpoints.reading(),
    ):
        pass
    saved(made, 0, 1, 7)
    folder = made.checkpoints.path(2)
    away = f"mv {folder} {folder.with_name('damaged-step-00002')}"
    says = f"{DAMAGES[what]}; use --step 7 to look at another, or go on from step 7 after: {re.escape(away)}$"
    with pytest.raises(CheckpointError, match=says), made.checkpoints.reading(2):
        pass


def test_a_checkpoint_without_a_manifest_is_not_pruned(made):
    saved(made, 1)
    (made.checkpoints.path(1) / "manifest.json").unlink()
    saved(made, 2, keep=1)
    assert made.checkpoints.steps() == [1, 2]


def test_a_checkpoint_that_is_always_replaced_is_given_up(made, monkeypatch):
    saved(made, 1)
    looks = []
    monkeypatch.setattr(checkpoints.Checkpoints, "_there", lambda self, step, steps: looks.append(step) or 99)
    says = "being written too fast to be read; try again, or name a --step"
    with pytest.raises(CheckpointError, match=says), made.checkpoints.reading():
        pass
    assert len(looks) == checkpoints.RETRIES


def test_what_came_after_a_step_is_forgotten(made):
    for step in (0, 1, 2, 3):
        made.log({"step": step})
        made.save_episodes(step, [])
    made.rewind(1, lines=3)
    assert [line["step"] for line in made.metrics()] == [0, 1, 2]
    assert made.saved_episodes() == [0, 1]


def test_a_step_that_is_no_whole_number_is_damage(made):
    for step in ("NaN", "1e400", "1.5"):
        (made.folder / "metrics.jsonl").write_text(f'{{"step": {step}}}\n')
        with pytest.raises(CheckpointError, match=r"metrics\.jsonl:1 is damaged"):
            made.metrics()


def test_a_folder_that_stands_in_its_place_is_not_written_to(made):
    with made.locked():
        made.log({"step": 0})
        made.folder.rename(made.folder.with_name("moved"))
        made.folder.mkdir()
        (made.folder / "lock").touch()
        with pytest.raises(CheckpointError, match="is gone: it was moved, removed or replaced"):
            made.log({"step": 1})
        assert [file.name for file in made.folder.iterdir()] == ["lock"]


def test_a_fork_of_the_process_that_holds_a_run_does_not_write_to_it(made, monkeypatch):
    with made.locked():
        made.log({"step": 0})
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with pytest.raises(CheckpointError, match="is gone"):
            made.log({"step": 1})
    made.log({"step": 1})


def test_a_run_without_its_checkpoints_is_not_begun_again_in_silence(made):
    made.log({"step": 0})
    made.check_begun()
    made.log({"step": 1})
    with pytest.raises(
        CheckpointError, match="has made 1 steps, and its checkpoints are gone; put them back, or start"
    ):
        made.check_begun()


def test_a_manifest_that_leaves_files_out_is_damage(made):
    saved(made, 1)
    folder = made.checkpoints.path(1)
    (folder / "more").write_text("x")
    with pytest.raises(CheckpointError, match=r"manifest\.json does not list its files"), made.checkpoints.reading():
        pass


def test_a_name_that_breaks_a_line_or_is_none_is_told(tmp_path):
    strange = "a\nb\x7f"
    Run.create(tmp_path / strange, config())
    assert Run(tmp_path / strange).config == config()
    with pytest.raises(CheckpointError, match="cannot be a folder's name: File name too long"):
        check_free(tmp_path / ("x" * 300))


def test_metrics_that_are_lost_are_told_before_a_run_goes_on(made):
    for step in (0, 1, 3, 4):
        made.log({"step": step})
    exact = made.about()["exact"]
    made.check_exact(exact, 1, lines=2)
    with pytest.raises(CheckpointError, match=r"run with metrics\.jsonl 4 lines, here 3; put that file back, or go on"):
        made.check_exact(exact, 3, lines=4)
    made.check_exact(exact, 3, lines=4, anyway=True)
    (went,) = made.about()["went_on_anyway"]
    assert went == {"step": 3, "differs": {"metrics.jsonl": ["4 lines", "3"]}}
    made.check_exact(exact, 3, lines=4)  # what is known to be lost is asked about once
    made.check_exact(exact, 1, lines=2)
    (made.folder / "metrics.jsonl").write_text('{"step": 0}\n')
    with pytest.raises(CheckpointError, match=r"run with metrics\.jsonl 4 lines, here 1"):
        made.check_exact(exact, 3, lines=4)


# Files and names -------------------------------------------------------------------------------------


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    file = tmp_path / "file"
    write_whole(file, "é", "do this")
    assert file.read_bytes() == "é".encode()
    write_whole(file, b"\xff", "do this")
    assert file.read_bytes() == b"\xff"

    def fails(handle):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(CheckpointError, match=r"file could not be written: Input/output error; do this$"):
        write_whole(file, "new", "do this")
    assert file.read_bytes() == b"\xff"
    assert names(tmp_path) == {"file"}


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space"), "No space; make room and do this"),
        (OSError(errno.EDQUOT, "Quota"), "Quota; make room and do this"),
        (OSError(errno.EFBIG, "Too large"), "Too large; make room and do this"),
        (OSError(errno.EACCES, "Denied"), "Denied; do this"),
        (RuntimeError("writer failed\nat line 3"), "writer failed; make room and do this"),
    ],
)
def test_why_a_write_failed_is_one_line(tmp_path, error, says):
    says = f"x could not be written: {says}$"
    with pytest.raises(CheckpointError, match=says), whole(tmp_path / "x", "do this"):
        raise error


def test_a_run_is_called_after_its_day_and_its_environment():
    at = r"\d{4}-\d\d-\d\d-\d{6}"
    assert re.fullmatch(rf"runs/{at}-plan_path", str(new_folder("plan_path")))
    assert re.fullmatch(rf"runs/{at}-mine", str(new_folder("some/mine.py:Env:x")))
    assert re.fullmatch(rf"runs/{at}-mine", str(new_folder("of my own/mine:Env")))


def test_a_step_beyond_five_digits_is_a_step_and_no_other_name_is(made):
    folder = made.folder / "checkpoints"
    for name in ("step-00007", "step-123456", "step-7", "step-00008-copy", "xstep-00009", "step-00x10"):
        (folder / name).mkdir(parents=True)
    assert made.checkpoints.steps() == [7, 123456]


def test_what_exactness_rests_on():
    base = exactness(config())
    assert set(base) == {
        "coterie",
        "torch",
        "transformers",
        "tokenizers",
        "numpy",
        "python",
        "config",
        "environment",
        "algorithm",
        "loss",
        "engine",
    }
    assert exactness(config()) == base
    assert sys.version.startswith(f"{base['python']}.")
    assert all(re.fullmatch(r"[0-9a-f]{12}", base[name]) for name in ("config", "environment", "algorithm"))

    def differs(*more: str) -> set[str]:
        other = exactness(config(*more))
        return {name for name in base if other[name] != base[name]}

    assert differs("train.steps=9") == set()
    assert differs("policies.team.model=elsewhere") == set()  # models are compared by what is in them
    assert differs("policies.team.template.quiet=true") == {"config"}
    assert differs("optimizer.lr=0.5") == differs("train.tasks_per_step=9") == {"config"}
    assert differs("algorithm.name=mas_grpo") == {"config", "algorithm"}
    assert exactness(load_config("plan_path"))["environment"] != base["environment"]


def test_files_of_ones_own_that_are_imported_belong_to_an_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    files = {"far_off": "X = 1\n", "nearby": "import far_off\nimport json\n", "aside": "X = 1\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "mine.py").write_text(
        "from nearby import far_off\nfrom tests.toys import Agree\nclass Mine(Agree): pass\n"
    )
    settings = load_config("mine.py:Mine").environment
    before = _source(settings)
    for name, belongs in (("far_off", True), ("nearby", True), ("mine", True), ("aside", False)):
        file = tmp_path / f"{name}.py"
        text = file.read_text()
        file.write_text(f"{text}# a remark\n")
        assert (_source(settings) != before) == belongs, name
        file.write_text(text)
    assert _source(settings) == before
    for name in ("far_off", "nearby"):
        sys.modules.pop(name)


def test_a_lock_of_a_checkpoint_is_one_that_others_see(made):
    saved(made, 1)
    with (
        made.checkpoints.reading(1) as (folder, _),
        (folder / "manifest.json").open() as other,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


FORMS = {
    "from pack import rules": "pack/rules.py",
    "from pack.rules import X": "pack/rules.py",
    "import pack.rules": "pack/rules.py",
    "import pack.further": "pack/rules.py",  # which says: from .rules import X
    "import pack": "pack/__init__.py",
    "from pack import within": "pack/rules.py",  # which says: from . import rules
    "import pack.inner.leaf": "pack/__init__.py",
    "from pack.inner.leaf import X": "pack/inner/__init__.py",
    "import pack.inner.outward": "pack/rules.py",  # which says: from ..rules import X
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_import_is_followed(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    files = {
        "__init__": "", "rules": "X = 1\n", "further": "from .rules import X\n", "within": "from . import rules\n",
        "inner/__init__": "", "inner/leaf": "X = 1\n", "inner/outward": "from ..rules import X\n",
    }  # fmt: skip
    (tmp_path / "pack" / "inner").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "pack" / f"{name}.py").write_text(text)
    (tmp_path / "mine.py").write_text(f"{form}\nfrom tests.toys import Agree\nclass Mine(Agree): pass\n")
    settings = load_config("mine.py:Mine").environment
    before = _source(settings)
    (tmp_path / FORMS[form]).write_text("X = 2\n")
    assert _source(settings) != before
    for name in [name for name in sys.modules if name.partition(".")[0] == "pack"]:
        sys.modules.pop(name)


def test_what_lies_beside_the_library_is_ones_own_and_what_is_compiled_is_not_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "environments").mkdir()
    own = tmp_path / "environments" / "own.py"
    own.write_text("import compiled\nimport json\nimport nowhere\nfrom . import beside\n")
    compiled = tmp_path / "compiled.so"
    compiled.write_bytes(b"\0\1")
    assert _imported("own", str(own)) == {"compiled": str(compiled)}
    assert _imported("compiled", str(compiled)) == {}


def test_a_file_that_nobody_could_import_imports_nothing(tmp_path):
    for content in ("def (:\n", "x = '\0'\n"):
        (tmp_path / "broken.py").write_text(content)
        assert _imported("broken", str(tmp_path / "broken.py")) == {}


def test_what_has_been_loaded_by_now_decides_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seldom.py").write_text("X = 1\n")
    (tmp_path / "mine.py").write_text(
        "from tests.toys import Agree\n"
        "class Mine(Agree):\n"
        "    async def play(self, task, scene):\n"
        "        import seldom\n"
    )
    settings = load_config("mine.py:Mine").environment
    assert "seldom" not in sys.modules
    before = _source(settings)
    importlib.import_module("seldom")
    assert _source(settings) == before
    (tmp_path / "seldom.py").write_text("X = 2\n")
    assert _source(settings) != before
    sys.modules.pop("seldom")
    sys.path.remove(str(tmp_path))


def test_files_that_settings_name_in_lists_and_folders_belong_to_it(tmp_path):
    class Reading(Agree):
        files: list[str]
        tables: dict[str, str]
        folder: str

    (tmp_path / "folder" / "deep").mkdir(parents=True)
    one, two, deep = tmp_path / "one", tmp_path / "two", tmp_path / "folder" / "deep" / "file"
    for file in (one, two, deep):
        file.write_text("1")
    settings = Reading(files=["no file", str(one)], tables={"x": str(two)}, folder=str(tmp_path / "folder"))
    for file in (one, two, deep):
        before = _source(settings)
        file.write_text("2")
        assert _source(settings) != before


def test_a_cell_of_a_notebook_is_a_file_that_python_alone_knows(tmp_path):
    name, before = str(tmp_path / "ipykernel" / "1.py"), []
    for number in (1, 2):
        text = f"from .aside import X as Y\nNUMBER = {number}\n"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        assert _imported("cell", name) == {}
        before.append(_content(name))
    assert before[0] != before[1]
    linecache.cache.pop(name)


@pytest.mark.slow
def test_files_of_one_name_are_read_in_one_order(tmp_path):
    for name in "abcdefgh":
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"X = '{name}'\n")
    (tmp_path / "mine.py").write_text(
        "import a, b, c, d, e, f, g, h\nfrom tests.toys import Agree\nclass Mine(Agree): pass\n"
    )
    code = """if True:
        from coterie.config.resolve import load_config
        from coterie.run.exactness import _source
        print(_source(load_config("mine.py:Mine").environment))
    """
    digests = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f"{Path(__file__).parents[2]}:{tmp_path}"},
        ).stdout
        for seed in "12"
    ]  # fmt: skip
    assert digests[0] == digests[1]


@pytest.mark.parametrize("name", ["manifest.json", "progress.json"])
def test_a_checkpoints_file_that_cannot_be_read_is_one_line(made, name):
    saved(made, 1)
    (made.checkpoints.path(1) / name).unlink()
    (made.checkpoints.path(1) / name).mkdir()
    with (
        pytest.raises(CheckpointError, match=rf"{name} cannot be read \(it is no ordinary file\); put it back"),
        made.checkpoints.reading(),
    ):
        pass


def test_a_manifest_that_is_no_text_is_damage(made):
    saved(made, 1)
    (made.checkpoints.path(1) / "manifest.json").write_bytes(b"\xff\xfe")
    with pytest.raises(CheckpointError, match="step-00001 is damaged"), made.checkpoints.reading():
        pass


def test_metrics_have_bounds(made, monkeypatch):
    (made.folder / "metrics.jsonl").write_text('{"step": 0, "x": 1}\n{"step": 1, "x": 1}\n')
    monkeypatch.setattr("coterie.run.folder.MOST_FIGURES", 4)
    assert len(made.metrics()) == 2
    monkeypatch.setattr("coterie.run.folder.MOST_FIGURES", 3)
    with pytest.raises(CheckpointError, match="more than 5,000 names or 3 figures"):
        made.metrics()
    monkeypatch.undo()
    monkeypatch.setattr("coterie.run.folder.MOST_NAMES", 1)
    with pytest.raises(CheckpointError, match="more than 1 names"):
        made.metrics()


def test_metrics_that_cannot_be_read_are_one_line(made):
    (made.folder / "metrics.jsonl").unlink(missing_ok=True)
    (made.folder / "metrics.jsonl").mkdir()
    with pytest.raises(CheckpointError, match=r"metrics.jsonl cannot be read \(it is no ordinary file\)"):
        made.metrics()


def test_a_removal_that_was_cut_short_is_ended(made):
    saved(made, 1)
    left = made.folder / "checkpoints" / ".pruned-step-00000"
    left.mkdir()
    made.checkpoints.recover()
    assert not left.exists()


def test_a_config_that_would_be_too_long_to_be_read_is_saved_without_who_set_it(tmp_path, monkeypatch):
    whole = (Run.create(tmp_path / "one", config(), EXACT).folder / "config.toml").read_bytes()
    assert b"  # " in whole
    monkeypatch.setattr("coterie.run.folder.LARGEST", len(whole) - 1)
    run = Run.create(tmp_path / "two", config(), EXACT)
    assert "  # " not in (run.folder / "config.toml").read_text()
    assert run.config.tables() == config().tables()


def test_files_of_the_package_are_told_by_its_version_and_not_followed():
    """An edit of the learner is no edit of every environment: the package's version says it."""
    from coterie.engines import transformers
    from coterie.run.exactness import _imported, _installed
    from coterie_worlds import tally

    assert _installed(transformers.__file__)
    assert _installed(tally.__file__)
    beside = Path(tally.__file__).parents[1] / "mine.py"
    assert not _installed(str(beside)), "what lies beside the package is its user's"
    assert _imported("coterie.engines.transformers", transformers.__file__) == {}
