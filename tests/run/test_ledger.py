"""The ledger: what it proves, and what it does not let through."""

import json

import pytest
from typer.testing import CliRunner

from coterie.cli import app
from coterie.errors import CheckpointError
from coterie.kernel.engine import Request
from coterie.kernel.episode import Sample
from coterie.run.ledger import FILE, Ledger, LedgerLine, audit, entries, read


def sample(seed: int, ids=(5, 6), logprobs=(-1.0, -2.0), version=3) -> Sample:
    return Sample("a", "x", version, (1, 2), ids, logprobs, "stop", "t", seed=seed)


REQUEST = Request(("task", 0, "0@0", "a"), "x", "a", "hello", (1, 2), (7, 8), 1.0, 1.0, 9, ())


def entry(name: str, version: int = 0, policy: str = "x") -> list:
    return list(LedgerLine(name, "task", 0, "0@0", "a", policy, version, "x/0", 2, "abc"))


def whole() -> list[dict]:
    """Two steps: in the first a worker ends, and a sample is played on; the second is behind by one update."""
    return [
        {"at": "began", "step": 0, "incarnation": 0, "ahead": 1},
        {"at": "sent", "step": 0, "attempt": "A", "worker": 0, "tasks": [1]},
        {"at": "lost", "step": 0, "attempt": "A", "reason": "its worker has ended"},
        {"at": "sent", "step": 0, "attempt": "B", "worker": 1, "tasks": [1]},
        {"at": "sent", "step": 1, "attempt": "C", "worker": 0, "tasks": [2]},
        {"at": "done", "step": 0, "attempt": "B", "samples": [entry("s1"), entry("s2"), entry("s3")]},
        {"at": "settled", "step": 0, "trained": {"x": ["s1", "s2"]}, "dropped": {"played on": ["s3"]}},
        {"at": "done", "step": 1, "attempt": "C", "samples": [entry("s4")]},
        {"at": "settled", "step": 1, "trained": {"x": ["s4"]}, "dropped": {}},
    ]


def kept(folder, lines):
    (folder / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_sample_is_written_with_its_seed_and_a_hash_of_what_it_says_and_how_likely():
    one, two = entries(REQUEST, (sample(7), sample(8)), "x/0 of process 3")
    assert (one.id, one.task, one.path, one.version, one.tokens) == ("0000000000000007", "task", "0@0", 3, 2)
    assert one.digest == two.digest
    ((other,), (likelier,)) = (
        tuple(entries(REQUEST, (each,), "x")) for each in (sample(7, ids=(5, 7)), sample(7, logprobs=(-1.0, -2.5)))
    )
    assert len({one.digest, other.digest, likelier.digest}) == 3


def test_every_sample_ends_once(tmp_path):
    told = audit(kept(tmp_path, whole()))
    assert (told.steps, told.drawn, told.tokens, told.trained, told.dropped) == (2, 4, 8, {"x": 3}, {"played on": 1})
    assert told.staleness == {0: 2, 1: 1}
    assert told.lost == {"its worker has ended": 1}
    assert not told.odd
    done = CliRunner().invoke(app, ["ledger", str(tmp_path)])
    assert done.exit_code == 0
    assert done.output.splitlines()[0] == "4 samples were drawn in 2 steps: 8 tokens; engines: 1"
    assert done.output.splitlines()[-1] == "every sample has ended, and once"


@pytest.mark.parametrize(
    ("at", "change", "odd"),
    [
        (6, {"trained": {"x": ["s1", "s2", "s2"]}}, "step 1: sample s2 was trained twice"),
        (6, {"trained": {"x": ["s1"]}}, "step 1: sample s2 was lost"),
        (6, {"dropped": {"played on": ["s2", "s3"]}}, "step 1: sample s2 was trained and dropped"),
        (6, {"trained": {"x": ["s1", "s2", "s9"]}}, "step 1: sample s9 has ended and was never drawn"),
        (6, {"trained": {"y": ["s1", "s2"]}}, "step 1: sample s1 of x has trained y"),
        (5, {"attempt": "A"}, "step 1: attempt A came back and was not under way"),
        (5, {"samples": [entry("s1"), entry("s2"), entry("s3"), entry("s1")]}, "step 1: sample s1 of task task was drawn twice"),  # noqa: E501
        (8, {"step": 0}, "step 1 was settled twice"),
        (2, {"attempt": "Z"}, "step 1: attempt Z was lost and was not under way"),
        (2, {"step": 7}, "step 8: attempt A was lost and was not under way"),
        (2, {"step": 7}, "step 1 was settled without what attempt A has drawn"),
        (5, {"step": 9}, "step 10: attempt B came back and was not under way"),
        (6, {"dropped": {"played on": ["s3", "s3"]}}, "step 1: sample s3 was dropped twice"),
        (6, {"dropped": {"played on": ["s3"], "no advantage": ["s3"]}}, "step 1: sample s3 was dropped twice"),
        (7, {"samples": [entry("s4", version=2)]}, "step 2: sample s4 is of the weights after step 2"),
        (0, {"ahead": 0}, "step 2: sample s4 is of the weights after step 0"),
        (6, {"step": 3}, "step 1 was learned, and what became of its samples is missing"),
        (0, {"at": "began?"}, "an event that is none: 'began?'"),
    ],
)  # fmt: skip
def test_what_must_not_be_is_said(at, change, odd, tmp_path):
    lines = whole()
    lines[at] = lines[at] | change
    assert odd in audit(kept(tmp_path, lines)).odd
    assert CliRunner().invoke(app, ["ledger", str(tmp_path)]).exit_code == 1


@pytest.mark.parametrize(
    ("kept_lines", "odd"),
    [
        (slice(0, 0), "nothing in it says that a run began"),
        (slice(0, 8), "step 2 was learned, and what became of its samples is missing"),
        (slice(0, 1), "step 1 was learned, and what became of its samples is missing"),
    ],
)
def test_what_the_run_has_learned_and_the_ledger_lacks_is_said(kept_lines, odd, tmp_path):
    folder = kept(tmp_path, whole()[kept_lines])
    assert odd in audit(folder, learned=2).odd
    (folder / "metrics.jsonl").write_text('{"step": 0}\n{"step": 2}\n')
    done = CliRunner().invoke(app, ["ledger", str(folder)])
    assert odd in done.output
    assert done.exit_code == 1


def test_a_run_that_goes_on_has_samples_that_have_not_ended(tmp_path):
    told = audit(kept(tmp_path, whole()[:8]), learned=1)
    assert (told.odd, told.steps, told.drawn, told.tokens, told.open) == ([], 1, 3, 6, 1)


def test_what_a_process_takes_up_again_undoes_what_came_after(tmp_path):
    again = [
        {"at": "began", "step": 1, "incarnation": 1, "ahead": 0},
        {"at": "sent", "step": 1, "attempt": "D", "worker": 0, "tasks": [2]},
        {"at": "done", "step": 1, "attempt": "D", "samples": [entry("s4", version=1)]},
    ]
    told = audit(kept(tmp_path, [*whole(), *again]))
    assert (told.incarnations, told.undone, told.steps, told.drawn, told.open) == (2, 1, 1, 3, 1)
    assert told.dropped == {"played on": 1}
    assert "1 more are of a step that the run has not learned" in str(told)
    assert told.staleness == {0: 2}
    assert not told.odd


def test_a_writer_goes_on_after_a_line_that_was_cut(tmp_path):
    first = Ledger(tmp_path, 0, 0)
    first.write("sent", step=0, attempt="A", worker=0, tasks=[1])
    first.close()
    with (tmp_path / FILE).open("a") as file:
        file.write('{"at":"done","st')
    assert [line["at"] for line in read(tmp_path)] == ["began", "sent"]
    second = Ledger(tmp_path, 0, 0)
    second.close()
    assert [line["at"] for line in read(tmp_path)] == ["began", "sent", "began"]
    assert second.incarnation == 1


def test_a_ledger_that_is_not_there_or_damaged_is_one_line(tmp_path):
    with pytest.raises(CheckpointError, match=r"has no ledger \(ledger.jsonl is missing\); a run keeps one where"):
        audit(tmp_path)
    (tmp_path / FILE).write_text('{"at":"began"\n{}\n')
    with pytest.raises(CheckpointError, match=r"ledger.jsonl:1: this line is damaged"):
        audit(tmp_path)
    (tmp_path / FILE).write_text('{"at":"began"}\n')
    with pytest.raises(CheckpointError, match=r"ledger.jsonl: an event lacks 'step'"):
        audit(tmp_path)
