"""The viewer: who may look, that every page is there and hostile text stays text, and what is played in it."""

import contextlib
import http.client
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from html import unescape
from pathlib import Path
from posixpath import normpath
from urllib.parse import quote, urlencode

import pytest
import uvicorn

from coterie import load, load_config, train
from coterie.errors import CheckpointError, ConfigError
from coterie.models.load import save_model
from coterie.protocol.listening import listen
from coterie.report.diagnose import history
from coterie.run import loaded
from coterie.run.ablation import every_ablation
from coterie.run.folder import Run
from coterie.view.app import Viewer
from coterie.view.bundle import write
from coterie.view.measured import Measure, MeasureCache
from coterie.view.pages import Missing, Site, _said
from coterie.view.shelf import Shelf
from tests.report.test_report import HOSTILE, browser, runs  # noqa: F401  (a fixture)
from tests.toys import tiny

KEY = "a key"
COOKIE = "coterie-1"
PASS = blake2b(KEY.encode(), person=b"viewer", digest_size=24).hexdigest()
SHIFTED = re.compile(r'class="s(\d)" title="(\S+) → (\S+), \S (\S+)"')
LINK = re.compile(r'<a\b[^>]*?\shref="([^"]*)"')


class Window:
    """A browser's way in: it keeps cookies and follows nothing."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = f"{COOKIE}={PASS}"

    def ask(self, path: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, dict[str, str], str]:
        body = None if form is None else urlencode(form)
        sent = {"Cookie": self.cookie} if self.cookie else {}
        if form is not None:
            sent |= {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/x-www-form-urlencoded"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET" if form is None else "POST", path, body, sent | headers)
            answer = connection.getresponse()
            told = {name.lower(): value for name, value in answer.headers.items()}
            return answer.status, told, answer.read().decode()


@pytest.fixture(scope="module")
def window(runs) -> Iterator[Window]:  # noqa: F811
    place = listen("127.0.0.1", 0)
    viewer = Viewer(Site(Shelf([run.parent for run in runs[:1]])), KEY, COOKIE)
    config = uvicorn.Config(viewer.app(), log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place.socket]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield Window(place.port)
    server.should_exit = True
    thread.join()


def test_a_form_of_many_fields_is_refused(window):
    status, _, text = window.ask("/0/play", {str(number): "" for number in range(200)})
    assert (status, "has fewer than 100 fields" in text) == (413, True)


def test_nothing_is_shown_without_the_key_under_another_name_or_to_another_pages_form(window):
    stranger = Window(window.port)
    stranger.cookie = ""
    for path in ("/", "/kind/", "/static/style.css", "/nothing/", "/?key=wrong", "/?key=%ff"):
        status, _, text = stranger.ask(path)
        assert (status, "Runs" in text) == (401, False), path
    assert stranger.ask("/kind/play/", {"task": "0"})[0] == 401
    for other in ("other", KEY):
        stranger.cookie = f"{COOKIE}={other}"
        assert stranger.ask("/")[0] == 401
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
        assert window.ask("/", Host=host)[0] == 403
        assert window.ask(f"/?key={quote(KEY)}", Host=host)[0] == 403
    assert window.ask("/kind/play/", {"task": "0"}, Origin="http://evil.example")[0] == 403
    assert window.ask("/kind/play/", {"task": "0"}, Origin="null")[0] == 403
    assert window.ask("/kind/play/", {"seat": "x" * 20_000_000})[0] == 413


def test_the_first_address_gives_a_cookie_that_no_script_reads_and_no_other_site_sends(window):
    status, headers, _ = Window(window.port).ask(f"/?key={quote(KEY)}")
    assert (status, headers["location"]) == (303, "/")
    assert headers["set-cookie"] == f"{COOKIE}={PASS}; HttpOnly; Path=/; SameSite=strict", "the key itself stays here"
    for path in ("//evil.example", "//evil.example/x", "/%2fevil.example/x", "//evil.example/?key=" + quote(KEY)):
        status, headers, _ = Window(window.port).ask(path)
        assert not headers.get("location", "").startswith("//"), path


def test_pages_may_run_the_one_script_and_ask_nobody_else(window):
    status, headers, text = window.ask("/")
    assert status == 200
    assert "default-src 'none'; script-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert re.findall(r"<script[^>]*>", text) == ['<script src="./static/view.js" defer>']
    assert window.ask("/static/view.js")[1]["content-type"].startswith("text/javascript")


def test_a_page_that_has_not_changed_is_not_sent_again(window):
    _, headers, _ = window.ask("/kind/")
    status, _, text = window.ask("/kind/", **{"If-None-Match": headers["etag"]})
    assert (status, text) == (304, "")


@pytest.mark.parametrize(
    "path",
    [
        "nothing/", "kind/nothing/", "kind/rollouts/99/", "kind/rollouts/1/99/", "kind/rollouts/1/0/99/",
        "kind/rollouts/1/0/0/0/", "kind/rollouts/x/", "kind/rollouts/-1/", "kind/rollouts/99999999999999999999/",
        "kind/curves/1/", "kind/../../etc/passwd/", "%2e%2e/%2e%2e/etc/", "static/../kind/", "static/other.js",
        "kind/play/none/", "kind/rollouts/%C2%B2/",
    ],
)  # fmt: skip
def test_what_is_nowhere_is_said_in_a_page(window, path):
    status, headers, text = window.ask(f"/{path}")
    assert status in (404, 307), path
    if status == 404:
        assert "Nothing is here" in text
        assert headers["content-type"].startswith("text/html")


def crawl(get, first: str = "") -> dict[str, str]:
    """Every page that links lead to."""
    pages, left = {}, [first]
    while left:
        address = left.pop()
        if address in pages:
            continue
        pages[address] = get(address)
        for link in map(unescape, LINK.findall(pages[address])):
            assert not re.match(r"[a-z]+:|//", link), link
            path = link.partition("#")[0].partition("?")[0]
            found = normpath(f"/{address}{path}").strip("/")
            left.append(f"{found}/" if found else "")
    return pages


def test_every_page_is_there_and_what_a_model_wrote_is_text(runs, window):  # noqa: F811
    def get(address: str) -> str:
        status, _, text = window.ask(f"/{address}")
        assert status == 200, address
        return text

    pages = crawl(get)
    assert len(pages) > 60
    name = next(address for address in pages if address.startswith("b-hostile"))
    for page in ("curves", "roles", "rollouts", "warnings", "memory", "config", "find", "play", "rollouts/1/0/0"):
        assert f"{name.split('/')[0]}/{page}/" in pages, page
    everything = "".join(pages.values())
    assert "&lt;script&gt;document.title=" in everything
    assert set(re.findall(r"<(script|img|iframe|object|embed|meta|base)\b", everything)) == {"script", "meta"}
    assert not re.search(r'(?:src|href|action)="(?:https?:|//|javascript:)', everything)
    assert not re.search(r"\son[a-z]+=", re.sub(r">[^<]*<", "><", everything))
    assert "\x1b" not in everything
    assert "\u202e" not in everything
    assert "{{ 7*7 }}" in everything


def test_tokens_are_told_apart_and_neighbours_are_one_step_away(window):
    _, _, text = window.ask("/kind/rollouts/1/0/0/")
    assert re.search(r'<span class="t[0-4]" title="0?\.?\d', text)
    assert "replies to one prompt" in text
    assert 'rel="next" href="../1/"' in text
    assert 'rel="prev"' not in text


def test_what_was_said_is_found_with_where_it_was(window):
    _, _, text = window.ask("/b-hostile/find/?" + urlencode({"text": "<SCRIPT>", "role": ""}))
    assert "&lt;script&gt;" in text
    assert re.search(r'href="\.\./rollouts/\d+/\d+/\d+/"', text)
    for query in (
        "text=nobody+said+this",
        "text=script&role=nobody",
        "text=nobody&upto=%C2%B2",
        "text=x&upto=" + "9" * 5000,
    ):
        status, _, text = window.ask(f"/b-hostile/find/?{query}")
        assert (status, "Nobody said it." in text) == (200, "text=x" not in query), query


def test_files_hold_every_page_with_links_that_lead_somewhere(runs, tmp_path):  # noqa: F811
    count, unread = write(Site(Shelf([runs[0]]), static=True), tmp_path / "site")
    assert not unread
    files = list((tmp_path / "site").rglob("index.html"))
    assert len(files) == count > 30
    for file in files:
        text = file.read_text()
        assert "<form" not in text
        assert "data-live" not in text
        for link in re.findall(r'(?:href|src)="([^"]*)"', text):
            path, _, anchor = link.partition("#")
            if path.startswith("data:"):
                continue
            target = (file.parent / path).resolve() if path else file
            assert target.is_file(), (file, link)
            assert not anchor or f'id="{anchor}"' in target.read_text(), (file, link)
    with pytest.raises(ConfigError, match="exists; name a new folder"):
        write(Site(Shelf([runs[0]]), static=True), tmp_path / "site")


def test_many_rows_come_in_pages_and_in_files_all_at_once(runs, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr("coterie.view.pages.AT_ONCE", 2)
    site = Site(Shelf([runs[0]]))
    first, second = site.get("kind/rollouts/1/"), site.get("kind/rollouts/1/", {"from": "2"})
    assert ("1 to 2 of 3" in first, 'href="?from=2"' in first) == (True, True)
    assert ("3 to 3 of 3" in second, 'href="?from=0"' in second) == (True, True)
    assert site.get("kind/rollouts/1/", {"from": "x"}) == first == site.get("kind/rollouts/1/", {"from": "999"})
    assert 'href="2/"' in Site(Shelf([runs[0]]), static=True).get("kind/rollouts/1/")


@pytest.fixture
def copies(runs, tmp_path) -> Path:  # noqa: F811
    for name in ("one", "other/one"):
        shutil.copytree(runs[0], tmp_path / name)
    return tmp_path


def test_a_shelf_sees_what_is_new_and_names_are_told_apart(copies, runs):  # noqa: F811
    shelf = Shelf([copies, copies / "other"])
    assert sorted(book.name for book in shelf.books()) == ["one", "one-2"]
    book = shelf.book("one")
    assert book is not None
    assert book.warnings == history(book.lines, tuple(book.roles))
    made = len(book.lines)
    with (book.folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 4.0, "groups/total": 3.0, "groups/live": 0.0, "rollout/no_reward": 1.0}) + "\n")
        file.write('{"step": 5')
    assert (len(book.lines), book.step) == (made + 1, 4)
    assert book.warnings == history(book.lines, tuple(book.roles))
    assert [concern.kind for step, concern in book.warnings if step == 4] == ["no_reward"]
    lines = (book.folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (book.folder / "metrics.jsonl").write_text("".join(lines[:2]) + lines[-2].replace("4.0", "2.0", 1))
    assert book.warnings == history(book.lines, tuple(book.roles)), "of a run that went back to a checkpoint"
    shutil.copytree(runs[0], copies / "static")
    assert {book.name for book in shelf.books()} == {"one", "one-2", "static-2"}
    shutil.rmtree(copies / "one")
    assert shelf.book("one") is None or shelf.book("one").folder != copies / "one"


def test_a_run_that_a_process_holds_is_running(copies):
    book = Shelf([copies / "one"]).books()[0]
    assert not book.running
    with book.run.locked():
        assert book.running
    assert not book.running


def test_a_search_goes_on_where_it_ended(copies, monkeypatch):
    monkeypatch.setattr("coterie.view.pages.LOOKED_AT", 1)
    shelf, steps = Shelf([copies / "one"]), []
    texts = [" ".join(text for *_, text in _said(shelf.books()[0], step)).lower() for step in (1, 2, 3)]
    letter = min(set.intersection(*map(set, texts)) - {" "})
    site, upto = Site(shelf), "99"
    while upto:
        page = site.get("one/find/", {"text": letter, "upto": upto})
        steps += sorted({int(step) for step in re.findall(r"rollouts/(\d+)/\d+/\d+/", page)})
        found = re.search(r"upto=(\d+)", page)
        upto = found[1] if found else ""
    assert steps == [3, 2, 1]


def test_a_run_that_cannot_be_read_is_told_and_hides_no_other(copies):
    (copies / "one/metrics.jsonl").write_text('{"step": "x"}\n')
    (copies / "broken").mkdir()
    (copies / "broken/config.toml").write_text("[environment\n")
    site = Site(Shelf([copies, copies / "other"]))
    page = site.get("")
    assert page.count("cannot be shown") == 2
    assert re.search(r'<a href="\./one(-2)?/">', page)
    with pytest.raises(CheckpointError, match="cannot be read"):
        site.get("broken/")
    with pytest.raises(CheckpointError, match="is no folder"):
        Shelf([copies / "nothing"])
    assert "There is no run here yet" in Site(Shelf([copies / "one/checkpoints"])).get("")
    with pytest.raises(Missing):
        site.get("nobody/")


SPOILT = {
    "config.toml": ["environment = 3", "[environment\n", "q = " + "[" * 20_000, '[train]\nsteps = "x"', "team = 1"],
    "metrics.jsonl": [
        '{"step": 1, "validation/success": 1' + "0" * 400 + "}", '{"step": 1, "validation/success_low": 1}',
        '{"step": 1, "validation/success": 1}', '{"step": 1, "mute/a/change": 1}', '{"step": 1e300}',
        '{"step": 1, "groups/total": 1}', "{" * 20_000,
    ],
}  # fmt: skip


@pytest.mark.parametrize(("file", "content"), [(file, one) for file, some in SPOILT.items() for one in some])
def test_whatever_a_folder_holds_it_hides_no_other_run_and_is_told(copies, file, content):
    (copies / "one" / file).write_text(f"{content}\n")
    site = Site(Shelf([copies, copies / "other"]))
    assert re.search(r'href="\./one(-2)?/"', site.get(""))
    for page in ("", "curves/", "roles/", "warnings/", "memory/", "config/", "rollouts/1/0/0/"):
        for name in ("one", "one-2"):
            with contextlib.suppress(CheckpointError):  # and nothing else
                site.get(f"{name}/{page}")


def test_a_file_that_is_none_is_not_waited_for(copies):
    for name in ("metrics.jsonl", "config.toml"):
        (copies / "one" / name).unlink()
        os.mkfifo(copies / "one" / name)
    assert re.search(r'href="\./one(-2)?/"', Site(Shelf([copies, copies / "other"])).get(""))


def test_a_rollout_that_is_damaged_or_too_large_hides_nothing_else(copies, monkeypatch):
    (copies / "one/episodes/step-00003.jsonl.gz").write_bytes(b"x")
    site = Site(Shelf([copies / "one"]), static=True)
    assert "Did it learn?" in site.get("one/")
    count, unread = write(site, copies / "files")
    assert count > 20
    assert len(unread) == 1
    assert "step-00003.jsonl.gz is damaged" in unread[0]
    monkeypatch.setattr("coterie.run.folder.LARGEST_ROLLOUT", 1000)
    with pytest.raises(CheckpointError, match="more than 1,000 bytes"):
        Site(Shelf([copies / "one"])).get("one/rollouts/1/")


def test_files_are_written_beside_nothing_that_they_would_remove(runs, tmp_path):  # noqa: F811
    (tmp_path / ".site").mkdir()
    (tmp_path / ".site/precious").write_text("x")
    write(Site(Shelf([runs[0]]), static=True), tmp_path / "site")
    assert (tmp_path / ".site/precious").is_file()
    assert sorted(one.name for one in tmp_path.iterdir()) == [".site", "site"]


HOSTILE_TOKENIZERS = {
    "long": {
        "type": "Sequence",
        "decoders": [{"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 100}] * 2,
    },
    "panics": {"type": "Strip", "content": "a", "start": 5, "stop": 5},
}


@pytest.mark.parametrize("name", HOSTILE_TOKENIZERS)
def test_a_tokenizer_that_would_harm_makes_tokens_of_some_length(copies, name):
    for file in (copies / "one/checkpoints").glob("*/policies/*/tokenizer.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"decoder": HOSTILE_TOKENIZERS[name]}))
    page = Site(Shelf([copies / "one"])).get("one/rollouts/1/0/0/")
    assert len(page) < 200_000


@pytest.mark.slow
def test_a_person_plays_a_role_and_answers_a_decision_otherwise(window):
    status, headers, _ = window.ask(
        "/kind/play/", {"seat": "a", "split": "test", "task": "1", "step": "", "how": "greedy"}
    )
    assert status == 303
    _, _, page = window.ask(headers["location"])
    assert '<textarea required name="say a" autofocus>' in page
    assert 'name="say b"' not in page
    question = headers["location"]
    assert window.ask(question, {"point": "0"})[0] == 409, "no answer is not an empty one"
    status, headers, _ = window.ask(question, {"point": "0", "say a": "<b>me</b>"})
    assert status == 303
    assert window.ask(question, {"point": "0", "say a": "once more"})[0] == 409, "it has been answered"
    whole = headers["location"]
    _, _, page = window.ask(whole)
    assert "&lt;b&gt;me&lt;/b&gt;" in page
    assert re.search(r"<b>(not )?solved", page)
    assert window.ask(whole, {"point": "1", "say a": "again"})[0] == 409, "nobody is asked any more"
    assert window.ask(whole.replace("/kind/", "/b-hostile/"))[0] == 404, "it is another run's"
    status, headers, _ = window.ask(whole, {"fork": "0"})
    fork = headers["location"]
    assert fork != whole
    _, _, page = window.ask(fork)
    said = {who: unescape(text) for who, text in re.findall(r'name="say (\w)"[^>]*>\n([^<]*)</textarea>', page)}
    assert said["a"] == "<b>me</b>", "what was said there before"
    window.ask(fork, {"point": "0"} | {f"say {who}": text for who, text in said.items()})
    ends = [re.findall(r"<b>((?:not )?solved[^<]*)", window.ask(each)[2]) for each in (whole, fork)]
    assert ends[1] == ends[0] * 2, "the same, beside what was before"
    assert window.ask(whole, {"fork": "99"})[0] == 409
    for form in ({"seat": "nobody"}, {"split": "none"}, {"task": "x"}, {"step": "77"}):
        status, _, page = window.ask("/kind/play/", {"split": "test", "task": "1", **form})
        assert (status, "This cannot be shown" in page) == (409, True), form


@pytest.mark.slow
def test_two_teams_play_one_task_side_by_side(window):
    form = {"a": "kind", "step_a": "0", "b": "kind", "step_b": "3", "split": "test", "task": "0"}
    assert "<section" not in window.ask("/compare/?" + urlencode(form))[2], (
        "a page that is only looked at plays nothing"
    )
    for wrong, why in (({"b": "b-hostile"}, "no task in common"), ({"b": "nobody"}, "no run &#39;nobody&#39;")):
        status, _, page = window.ask("/compare/", form | wrong)
        assert (status, why in page) == (409, True)
    _, headers, _ = window.ask("/compare/", form)
    _, _, page = window.ask(headers["location"])
    assert "kind, step 0" in page
    assert "kind, step 3" in page
    assert len(re.findall(r"<b>(?:not )?solved", page)) == 2


SPINNING = """
from coterie import Environment, Task


class Spinning(Environment):
    roles = ("a",)

    def task(self, split, index):
        return Task(f"{split}-{index}", split, query=f"{split} {index}")

    async def play(self, task, scene):
        await scene.ask("a", "pick")
        while task.split == "test":
            pass
        scene.team_reward(1.0)
"""


@pytest.mark.slow
def test_ctrl_c_stops_it_and_pages_are_shown_while_an_episode_never_ends(tmp_path):
    (tmp_path / "spinning.py").write_text(SPINNING)
    save_model(tiny(scale=2.0), tmp_path / "model")
    sets = [
        f"policies.team.model={tmp_path / 'model'}",
        "train.steps=1",
        "train.tasks_per_step=2",
        "train.eval_tasks=2",
    ]
    train(load_config(f"{tmp_path / 'spinning.py'}:Spinning", [*sets, "engine.max_tokens=2"]), tmp_path / "runs/spins")
    command = [sys.executable, "-m", "coterie.cli", "view", str(tmp_path / "runs"), "--port", "0"]
    viewer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"COTERIE_KEY": KEY})
    try:
        assert viewer.stdout is not None
        window = Window(int(re.search(r":(\d+)/", viewer.stdout.readline())[1]))
        window.cookie = f"coterie-{window.port}={PASS}"
        form = {"split": "test", "task": "0", "seat": ""}

        def wait() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):  # it is ended
                window.ask("/spins/play/", form)

        asked = threading.Thread(target=wait, daemon=True)
        asked.start()
        asked.join(5)
        assert asked.is_alive()
        assert window.ask("/spins/")[0] == 200
        viewer.send_signal(signal.SIGINT)
        assert viewer.wait(30) == 0
    finally:
        viewer.kill()
        viewer.communicate()


def test_a_checkpoint_is_asked_what_it_says_of_replies_that_others_sampled(runs, window):  # noqa: F811
    place = "/kind/rollouts/1/0/0/"
    assert not SHIFTED.search(window.ask(place)[2])
    status, headers, _ = window.ask(place, {"at": "0"})
    assert (status, headers["location"]) == (303, f"{place}?at=0")
    page = window.ask(headers["location"])[2]
    told = SHIFTED.findall(page)
    assert {kind for kind, *_ in told} == {"2"}, "they were sampled by these weights"
    last = Run(runs[0]).checkpoints.steps()[-1]
    assert last > 1
    later = window.ask(window.ask(place, {"at": str(last)})[1]["location"])[2]
    moved = SHIFTED.findall(later)
    assert len(moved) == len(told)
    for kind, before, after, ratio in moved:
        value = float(ratio)
        assert float(after) == pytest.approx(float(before) * value, rel=0.02)
        assert int(kind) == sum(value >= least for least in (0.5, 1 / 1.1, 1.1, 2.0)), ratio
    group = Run(runs[0]).episodes(1)[0].collected.groups[0]
    with closing(load(runs[0], last)) as team:
        said = [value for member in group.members for value in team.logprobs(member.samples[0])]
    assert [float(after) for _, _, after, _ in moved] == pytest.approx([math.exp(value) for value in said], rel=6e-3)
    assert not SHIFTED.search(window.ask(f"{place}?at=1")[2]), "that one was not asked"
    steps = Run(runs[0]).checkpoints.steps()
    (chosen,) = re.findall(r"<option selected>(\d+)</option>", window.ask(place)[2])
    assert int(chosen) == min(step for step in steps if step >= 1), "the first checkpoint after they were sampled"
    for form, status in (({"at": "77"}, 409), ({"at": "x"}, 409), ({}, 409)):
        assert window.ask(place, form)[0] == status
    for where in ("/kind/rollouts/1/0/99/", "/kind/rollouts/99/0/0/", "/kind/rollouts/x/0/0/", "/none/rollouts/1/0/0/"):
        assert window.ask(where, {"at": "0"})[0] == 404


def test_what_each_role_is_worth_is_measured_when_somebody_asks(runs, window):  # noqa: F811
    assert "Measure every role" in window.ask("/kind/roles/")[2]
    for tasks in ("0", "10001", "x", ""):
        assert window.ask("/kind/roles/", {"tasks": tasks})[0] == 409
    status, headers, _ = window.ask("/kind/roles/", {"tasks": "3"})
    assert (status, headers["location"]) == (303, "/kind/roles/#measured")
    while "of 3 validation tasks" not in (page := window.ask("/kind/roles/")[2]):
        assert "Measuring, " in page
        time.sleep(0.1)
    with closing(load(runs[0])) as team:
        asked = [one for one in every_ablation(team.config.team) if one.kind != "replace" or team.progress.step]
        whole, changes = team.compare(asked, "validation", tasks=3)
    assert f"solves <b>{whole.success:.3f}</b>" in page
    for change in changes:
        if change.ablation.startswith("mute "):
            told = f"without {change.ablation.removeprefix('mute ')} {100 * change.change:+.1f} points"
            story = window.ask("/kind/")[2]
            assert told in story, "the story knows it too"
            assert f"Change of success at step {team.progress.step}: " in story
        assert f"<td>{change.ablation}</td><td>{change.success:.3f}</td><td>{100 * change.change:+.1f}</td>" in page


def test_members_that_are_whole_episodes_are_asked_of_no_checkpoint(runs):  # noqa: F811
    group = Run(runs[0]).episodes(1)[0].collected.groups[0]
    first, *others = group.members
    whole = replace(group, scope="task", members=(replace(first, samples=(*first.samples, *first.samples)), *others))
    with pytest.raises(ConfigError, match="members of this group are whole episodes"):
        MeasureCache().ask(((runs[0], (0, 0, 0, 0)), 1, 0, 0, 0), whole)


@pytest.mark.parametrize(("step", "kinds"), [(0, {"mute", "swap"}), (2, {"mute", "swap", "replace"})])
def test_a_role_is_replaced_by_its_start_only_where_it_has_left_it(step, kinds, runs, monkeypatch):  # noqa: F811
    made = load(runs[0])
    made.progress = replace(made.progress, step=step)
    monkeypatch.setattr(loaded, "load", lambda folder: made)
    measured, run = MeasureCache(), (runs[0], (0, 0, 0, 0))
    measured.begin(run, 2)
    while not measured.measures[run].done:
        time.sleep(0.05)
    assert {change.ablation.split()[0] for change in measured.measures[run].changes} == kinds


def test_what_was_measured_of_a_run_is_not_shown_of_a_later_one_in_its_folder(copies):
    site = Site(Shelf([copies]))
    book = site.shelf.book("one")
    assert book is not None
    site.measured._measures[book.identity] = Measure(8, step=2, success=0.75, done=True)
    site.measured._later[book.identity, 1, 0, 0, 0] = [
        [0.0] * len(member.samples[0].completion_ids) for member in book.rollout(1)[0].collected.groups[0].members
    ]
    assert "solves <b>0.750</b> of 8" in site.get("one/roles/")
    assert SHIFTED.search(site.get("one/rollouts/1/0/0/", {"at": "0"}))
    shutil.copytree(copies / "one", copies / "again")
    shutil.rmtree(copies / "one")
    (copies / "again").rename(copies / "one")
    os.utime(copies / "one/config.toml")
    assert "0.750" not in site.get("one/roles/")
    assert not SHIFTED.search(site.get("one/rollouts/1/0/0/", {"at": "0"}))


def test_a_team_that_cannot_be_measured_says_why(copies, monkeypatch):
    folder = copies / "one"
    run = folder, (0, 0, 0, 0)
    (folder / "config.toml").write_text((folder / "config.toml").read_text().replace("[train]", "[trian]"))
    measured = MeasureCache()
    busy = copies / "other/one", (0, 0, 0, 0)
    measured._measures |= {(copies, (0, 0, 0, 0)): Measure(1, done=True), busy: Measure(1)}
    with pytest.raises(ConfigError, match="a team is being measured already"):
        measured.begin(run, 2)
    measured.measures[busy].done = True
    measured.begin(run, 2)
    while not measured.measures[run].done:
        time.sleep(0.05)
    assert "config.toml is damaged: [train] is missing" in measured.measures[run].error
    monkeypatch.setattr(loaded, "load", lambda folder: sys.exit("it is over"))
    measured.begin(run, 2)
    while not measured.measures[run].done:
        time.sleep(0.05)
    assert measured.measures[run].error == "SystemExit: it is over"
