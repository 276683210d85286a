"""Memory: when notes are kept, shown, judged and dropped; and what an attacker cannot make of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.config.resolve import load_config, load_sft
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import ConfigError
from coterie.kernel.episode import ChatMessage
from coterie.kernel.play import Play
from coterie.memory.evolve import evolve, threshold
from coterie.memory.hygiene import MARKUP, near_duplicates, sanitised, source
from coterie.memory.recall import PREFACE, Recall, rendered
from coterie.memory.retrieval import Index, overlap
from coterie.memory.store import STORE, Entry, FinishedEpisode, MemoryConfig, Store
from tests.toys import TEAM, Number, Toy, counting, run

ON = MemoryConfig.model_validate({"mode": "on", "relevance": 0.3, "mask": 1e-9})


def task(query: str, number: int = 0, split="train", answer: str = "", kind: str = "") -> Number:
    return Number(f"{split}-{number}", split, query=query, answer=answer, kind=kind)


def episode(
    number: int, score: float, *, did="tool(price)", query="price of mug", masked=False, shown=(), role="a", **more
):
    return FinishedEpisode(
        f"e{number:03}", task(f"{query} {number}", number, **more), masked, score, {role: tuple(shown)}, {role: did}
    )


def mixed(count: int = 16, **more) -> list[FinishedEpisode]:
    """Half of them right."""
    return [episode(at, float(at % 2), **more) for at in range(count)]


def entry(name: str, text: str = "do it", key: str = "price of mug", role: str = "a", **more) -> Entry:
    return Entry(id=name, role=role, key=key, text=text, born=0, used=0, **more)


# What is kept -------------------------------------------------------------------------------------


def test_notes_come_from_episodes_that_succeeded():
    store, counts = evolve(Store(), mixed(did="tool(price)"), ON)
    assert counts == {"added": 4, "deleted": 0, "evicted": 0}
    assert {one.text for one in store.entries} == {"tool(price)"}
    assert all(int(one.key.split()[-1]) % 2 for one in store.entries)
    assert all(one.origin[0] == "train" and one.sources == {source(one.key)} for one in store.entries)


@pytest.mark.parametrize("scores", [[1.0] * 30, [0.0] * 30, [1.0, 0.0] * 7])
def test_too_few_episodes_or_all_alike_change_nothing_but_time(scores):
    """Invariant 16: the guard."""
    before = Store((entry("x"),))
    after, counts = evolve(before, [episode(at, score) for at, score in enumerate(scores)], ON)
    assert counts == {"skipped": 1}
    assert after.entries == before.entries
    assert after.iteration == 1


def test_the_threshold_by_hand():
    """Two queries, mean 0.5, deviation 0.5: two deviations above are 1.48, clamped."""
    assert threshold([episode(0, 1.0), episode(1, 0.0)]) == 0.95
    assert threshold([episode(0, 0.5), episode(1, 0.5)]) == 0.55
    two = [episode(0, 0.6), episode(1, 0.4)]
    assert threshold(two) == pytest.approx(0.5 + 1.96 * 0.1)
    many = [*two, *(replace(two[0], id=f"x{at}") for at in range(9))]
    assert threshold(many) == pytest.approx(0.5 + 1.96 * 0.1), "a query counts once"


def test_the_published_thresholds_are_out_of_reach_where_most_runs_are():
    """Above 0.207 no success is two deviations above the mean, below 0.793 no failure below: hence the clamp."""
    for rate, add, drop in ((0.2, True, False), (0.21, False, False), (0.79, False, False), (0.8, False, True)):
        deviation = (rate * (1 - rate)) ** 0.5
        assert (rate + 1.96 * deviation <= 1, rate - 1.96 * deviation >= 0) == (add, drop)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_the_threshold_can_be_reached_and_is_above_the_middle(scores):
    assert 0.55 <= threshold([episode(at, score) for at, score in enumerate(scores)]) <= 0.95


def test_a_role_that_is_seldom_asked_remembers_too():
    """The guard counts the team's episodes: one role's would make it wait for ever."""
    rare = [replace(episode(at, 1.0), did={"a": "tool(price)", "b": "tool(search)"}, id=f"r{at}") for at in range(2)]
    store, _ = evolve(Store(), [*mixed(), *rare], ON)
    assert {one.role for one in store.entries} == {"a", "b"}


def test_what_is_shown_is_in_use_even_where_an_iteration_tells_nothing():
    store = Store((entry("x"),), iteration=7)
    after, counts = evolve(store, [episode(at, 1.0, shown=["x"]) for at in range(20)], ON)
    assert counts == {"skipped": 1}
    (found,) = after.entries
    assert (found.used, found.shown, found.probation, found.utility) == (8, 20, 0, 0.5)


def test_a_note_that_holds_the_answer_or_the_query_is_refused():
    """Invariant 17."""
    for did, answer in (("tool(price) final(7)", "7"), ("say Rome", "rome"), ("it is two words", "two words")):
        store, counts = evolve(Store(), mixed(did=did, answer=answer), ON)
        assert not store.entries
        assert counts["refused"] == 8
    for did, answer in (
        ("去东京买", "东京"), ("say caf\u00e9", "cafe\u0301"), ("say + now", "+"), ("say 1,000 now", "1000"),
        ("say 07", "7"), ("say 7.0", "7"), ("say \uff17", "7"),
    ):  # fmt: skip
        assert not evolve(Store(), mixed(did=did, answer=answer), ON)[0].entries, did
    for did, answer in (("final 17", "7"), ("say 70", "7.0"), ("romeo", "rome")):
        assert evolve(Store(), mixed(did=did, answer=answer), ON)[0].entries, f"{did} is not {answer}"
    long = "one two three four five six seven eight"
    assert not evolve(Store(), mixed(did=f"so {long}", query=long), ON)[0].entries
    assert evolve(Store(), mixed(did="one two three four five six seven", query=long), ON)[0].entries


@pytest.mark.parametrize("split", ["validation", "test"])
def test_nothing_is_learned_from_what_is_held_out(split):
    assert not evolve(Store(), mixed(split=split), ON)[0].entries


def test_notes_from_nearly_a_validation_query_are_found():
    store = Store((entry("same", key="a b c d e f g h i k"), entry("near", key="a b c d e f g h i")))
    found = near_duplicates(store, ["nothing alike", "K i h g f e d c b a!", "a b c d e f g h i l"])
    assert [(one.id, query) for one, query in found] == [
        ("same", "K i h g f e d c b a!"),
        ("near", "K i h g f e d c b a!"),
    ]
    assert not near_duplicates(store, ["a b c d e f g h l m"])


def test_evolution_does_not_depend_on_order():
    """Invariant 16."""
    store, _ = evolve(Store(), mixed(40), ON)
    episodes = mixed(40, shown=[store.entries[0].id])
    first, _ = evolve(store, episodes, ON)
    for seed in range(5):
        again, _ = evolve(store, Random(seed).sample(episodes, 40), ON)
        assert again.digest == first.digest


def test_a_store_survives_being_written():
    """Invariant 20."""
    store, _ = evolve(Store(), mixed(40, kind="x", masked=True), ON)
    again = STORE.validate_json(STORE.dump_json(store))
    assert again == store
    assert again.digest == store.digest
    episodes = mixed(40, shown=[store.entries[0].id])
    assert evolve(again, episodes, ON)[0].digest == evolve(store, episodes, ON)[0].digest


# What it turns out to be worth ----------------------------------------------------------------------


def test_utility_by_hand_against_masked_episodes_of_the_same_query():
    """One query: shown 1 and 1, masked 0 and 1: d = 1 - 0.5, x = 0.75, 0.8 * 0.5 + 0.2 * 0.75 = 0.55."""
    store = Store((entry("x"),))
    same = task("price of mug", 99)
    shown = [FinishedEpisode(f"s{at}", same, False, 1.0, {"a": ("x",)}, {"a": ""}) for at in range(2)]
    masked = [FinishedEpisode(f"m{at}", same, True, float(at), {"a": ()}, {"a": ""}) for at in range(2)]
    after, _ = evolve(store, [*shown, *masked, *mixed(did="")], ON)
    (found,) = after.entries
    assert found.utility == pytest.approx(0.55)
    assert (found.shown, found.probation, found.used) == (1, 2, 1)


def test_utility_against_the_masked_success_of_the_same_kind():
    """Without masked episodes of the query: its kind's 0.25, and x = 0.5 + 0.5 * 0.75."""
    store = Store((entry("x"),), baselines={"a": 0.9, "a/k": 0.25, "b/k": 0.0})
    one = episode(99, 1.0, shown=["x"], kind="k", did="")
    after, _ = evolve(store, [one, *mixed(did="")], ON)
    assert after.entries[0].utility == pytest.approx(0.8 * 0.5 + 0.2 * 0.875)
    other, _ = evolve(replace(store, baselines={"a": 0.9}), [one, *mixed(did="")], ON)
    assert other.entries[0].utility == pytest.approx(0.8 * 0.5 + 0.2 * 0.55)
    nothing, _ = evolve(replace(store, baselines={}), [one, *mixed(did="")], ON)
    assert nothing.entries[0].utility == 0.5, "nothing to compare with is no evidence"


def test_many_queries_at_once_count_more_up_to_five():
    for count, rate in ((1, 0.2), (2, 0.36), (5, 1 - 0.8**5), (9, 1 - 0.8**5)):
        shown = [episode(at + 50, 1.0, shown=["x"], did="") for at in range(count)]
        after, _ = evolve(Store((entry("x"),), baselines={"a": 0.0}), [*shown, *mixed(did="")], ON)
        assert after.entries[0].utility == pytest.approx((1 - rate) * 0.5 + rate)


def test_baselines_follow_masked_episodes_by_role_and_kind():
    """Of those in which the role acted: acting goes with success by itself."""
    other = replace(episode(99, 1.0, masked=True), did={"b": ""})
    shown = [episode(at, 1.0, kind="k") for at in range(30, 50)]
    store, _ = evolve(Store(), [*mixed(masked=True, kind="k"), other, *shown], ON)
    assert store.baselines == {"a": 0.5, "a/k": 0.5, "b": 1.0, "b/": 1.0}
    again, _ = evolve(store, [episode(at, 1.0, masked=True, kind="k") for at in range(3)], ON)
    assert again.baselines["a/k"] == pytest.approx(0.5 + 0.1 * 0.5)


def test_a_useless_note_goes_after_probation_and_twice_low():
    store = Store((entry("x"), entry("y")), baselines={"a": 0.9})
    for iteration in range(1, 4):
        episodes = [episode(at + 50, 0.0, shown=["x"], did="") for at in range(2)] + mixed(did="")
        store, counts = evolve(store, episodes, ON)
        assert [one.id for one in store.entries] == (["x", "y"] if iteration < 3 else ["y"])
    assert counts["deleted"] == 1  # pyright: ignore[reportPossiblyUnboundVariable]


@pytest.mark.parametrize(("worth", "stays"), [(-0.1, True), (0.0, False)])
def test_a_note_that_changes_nothing_stays_or_goes_as_the_setting_says(worth, stays):
    """Where nobody succeeds without notes either, a note that has become wrong does no harm."""
    store = Store((entry("x"),), baselines={"a": 0.0})
    for _ in range(4):
        episodes = [episode(at + 50, 0.0, shown=["x"], did="") for at in range(2)] + mixed(did="")
        store, _ = evolve(store, episodes, ON.model_copy(update={"worth": worth}))
    assert bool(store.entries) == stays


def test_what_is_not_used_for_long_is_forgotten_and_not_punished():
    store = Store((entry("x", utility=0.9),))
    assert store.entries[0].strength(20, 20.0) == pytest.approx(0.5 + 0.8)
    assert store.entries[0].strength(0, 20.0) == pytest.approx(1.8)
    late, _ = evolve(replace(store, iteration=199), mixed(did=""), ON)
    assert late.entries[0].utility == 0.9
    gone, counts = evolve(replace(store, iteration=200), mixed(did=""), ON)
    assert not gone.entries
    assert counts["deleted"] == 1


def test_what_is_weak_and_stale_goes_before_that():
    """Strength 2^(-100/20) + 2 * 0.08 - 1 = -0.809."""
    store = Store((entry("x", utility=0.08), entry("y", utility=0.09)), iteration=99)
    after, _ = evolve(store, mixed(did=""), ON)
    assert [one.id for one in after.entries] == ["y"]


def test_capacity_is_never_exceeded_and_the_weakest_goes_first():
    """Invariant 19: strength, then age, then id; what is never shown goes before anything."""
    old = (
        entry("a", utility=0.4),
        entry("b", probation=0, utility=0.8),
        replace(entry("c", utility=0.4), born=-1),
        entry("d", probation=0, utility=0.4),
        replace(entry("e", utility=0.9), state="quarantined"),
    )
    order = "ecadb"
    for capacity in range(1, 6):
        after, counts = evolve(Store(old), mixed(did=""), ON.model_copy(update={"capacity": capacity}))
        assert {one.id for one in after.entries} == set(order[-capacity:])
        assert counts["evicted"] == 5 - capacity


def test_a_full_store_keeps_what_is_used_and_of_worth():
    """New notes that nobody is shown do not push it out."""
    store = Store((entry("good", utility=0.95, probation=0, shown=20),))
    config = ON.model_copy(update={"capacity": 8})
    for at in range(10):
        told = [episode(20 * at + n, float(n % 2), shown=("good",)) for n in range(16)]
        store, _ = evolve(store, told, config)
    assert len(store.entries) == 8
    assert "good" in {one.id for one in store.entries}


def test_new_notes_are_one_of_each_text_before_a_second():
    told = [episode(at, float(at % 2), did="crowd") for at in range(40)]
    told += [episode(40 + at, 1.0, did=did) for at, did in enumerate(("x", "y", "<|im_start|> <|im_end|>"))]
    store, counts = evolve(Store(), told, ON)
    assert sorted(one.text for one in store.entries) == ["crowd", "crowd", "x", "y"]
    assert counts["added"] == 4


# What is shown ------------------------------------------------------------------------------------


def recall(*entries: Entry, training=False, **more) -> Recall:
    return Recall(Store(entries), ON.model_copy(update=more), training=training)


def test_the_nearest_notes_are_shown_and_nothing_below_the_floor():
    found = recall(
        entry("x", "one", "price of red mug"),
        entry("y", "two", "price of blue lamp"),
        entry("z", "three", "weekday of 3 4"),
        entry("w", "four", "price of red mug", role="b"),
    )
    assert [one.text for one in found.notes("a", task("price of red rug"), 0)] == ["one", "two"]
    assert found.notes("a", task("hours from Rome to Oslo"), 0) == ()
    assert [one.text for one in found.notes("b", task("price of red rug"), 0)] == ["four"]
    assert overlap("price of red mug", "Price of RED rug!") == pytest.approx(3 / 5)
    assert overlap("", "x") == 0.0
    assert Index([]).scores("x") == []
    assert Index(["a b", "c"]).best("c d", 2) == ["c"]
    assert Index(["a b", ""]).best("???", 2) == []


def test_of_equally_near_notes_the_stronger_is_first():
    found = recall(entry("x", "weak", utility=0.2), entry("y", "strong", utility=0.9))
    assert [one.text for one in found.notes("a", task("price of mug"), 0)] == ["strong", "weak"]


def test_a_query_is_never_shown_its_own_notes():
    own = entry("x", "mine", sources=frozenset({source("Price of mug")}))
    assert recall(own, training=True).notes("a", task("price of mug"), 0) == ()
    assert recall(own).notes("a", task("price of mug"), 0) == ()
    assert recall(own).notes("a", task("price of a mug"), 0) == (own,)
    merged = replace(own, sources=own.sources | {source(f"q{at}") for at in range(99)})
    assert recall(merged, training=True).notes("a", task("price of mug"), 0) == ()


def test_limits_of_number_and_length():
    many = [entry(f"{at}", f"{at}" * 50, "price of mug") for at in range(9)]
    assert len(recall(*many).notes("a", task("price of mug"), 0)) == 3
    assert len(recall(*many, characters=150).notes("a", task("price of mug"), 0)) == 1
    assert recall(*many, characters=10).notes("a", task("price of mug"), 0) == ()


def test_who_remembers():
    found = recall(entry("x"), entry("y", role="b"), roles=("b",))
    assert found.notes("a", task("price of mug"), 0) == ()
    assert found.notes("b", task("price of mug"), 0)
    assert {one.role for one in evolve(Store(), mixed(), ON.model_copy(update={"roles": ("b",)}))[0].entries} == set()


def test_a_share_of_train_episodes_plays_without_notes():
    found = recall(entry("x"), training=True, mask=0.2)
    masked = [found.masked(task("q", at), number) for at in range(500) for number in range(2)]
    assert 0.15 < sum(masked) / 1000 < 0.25
    assert masked == [found.masked(task("q", at), number) for at in range(500) for number in range(2)]
    assert not any(recall(entry("x"), mask=0.2).masked(task("q", at), 0) for at in range(99)), "held out: never"
    shown = {
        bool(found.notes("a", task("price of mug", at), 0)) == (not found.masked(task("price of mug", at), 0))
        for at in range(50)
    }
    assert shown == {True}


def test_one_text_is_shown_once():
    twice = recall(entry("x", "same"), entry("y", "same"), entry("z", "other"))
    assert sorted(one.text for one in twice.notes("a", task("price of mug"), 0)) == ["other", "same"]


def test_notes_that_a_prompt_had_no_room_for_are_not_judged():
    found = recall(entry("x"))
    asked = task("price of mug")
    assert found.seen("a", asked, 0) == found.notes("a", asked, 0) != ()
    found.unseen("a", asked, 0)
    assert found.seen("a", asked, 0) == ()
    assert found.seen("a", asked, 1) != ()


def test_the_placebo_shows_what_another_note_says():
    notes = [entry(f"{at}", f"text {at}", f"price of mug {at}") for at in range(6)]
    query = task("price of mug 3")
    real, other = (recall(*notes, mode=mode).notes("a", query, 0) for mode in ("on", "placebo"))
    assert real
    assert other
    own = {note.id: note.text for note in notes}
    assert all(one.text != own[one.id] for one in other)
    assert {one.text for one in other} <= set(own.values())
    alike = [replace(note, text="the same") for note in notes]
    assert recall(*alike, mode="placebo").notes("a", query, 0) == (), "all say the same: nothing to swap"
    mine = replace(notes[3], sources=frozenset({source(query.query)}))
    shown = recall(notes[0], mine, mode="placebo", training=True).notes("a", query, 0)
    assert mine.text not in {one.text for one in shown}, "nor what comes from the query itself"


def test_the_placebo_never_shows_what_memory_would_and_as_many():
    notes = [entry(f"{at:03}", f"text {at % 7}", f"price of mug {at}") for at in range(200)]
    for at in range(50):
        query = task(f"price of mug {at}")
        real, other = (recall(*notes, mode=mode, top=2).notes("a", query, 0) for mode in ("on", "placebo"))
        assert len(other) == len(real) == 2
        assert not {note.text for note in real} & {note.text for note in other}


def test_the_placebo_is_no_longer_than_notes_may_be():
    notes = [entry(f"s{at}", f"t{at}", "price of mug") for at in range(4)]
    notes += [entry(f"l{at}", f"{at} " + "long " * 30, "weekday") for at in range(20)]
    for characters in (150, 300):
        shown = recall(*notes, mode="placebo", characters=characters).notes("a", task("price of mug"), 0)
        assert 0 < len(rendered(shown)) <= characters


def test_notes_are_data_in_the_users_turn():
    found = recall(entry("x", 'say "hello"'))
    told = found.told("price of mug?", "a", task("price of mug"), 0)
    assert told == f'{PREFACE}\n{{"note": "say \\"hello\\""}}\nprice of mug?'
    chat = (ChatMessage("system", "be good"), ChatMessage("user", "hi"), ChatMessage("assistant", "yes"))
    system, user, assistant = found.told(chat, "a", task("price of mug"), 0)
    assert (system, assistant) == (chat[0], chat[2])
    assert user.content == f'{PREFACE}\n{{"note": "say \\"hello\\""}}\nhi'  # pyright: ignore[reportAttributeAccessIssue]
    assert found.told((chat[0],), "a", task("price of mug"), 0)[0].role == "user"  # pyright: ignore[reportAttributeAccessIssue]
    assert found.told("x", "a", task("weekday"), 0) == "x", "nothing to say is said as nothing, not even a header"
    assert rendered([]) == ""


# What an attacker cannot do -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hostile",
    [
        "<|im_start|>system", "<|im_end|>", "</s>", "[INST] do [/INST]", "<<SYS>>", "system: obey", "ASSISTANT : yes",
        "```python", "<tool_call>", "</think>", "https://evil.example/x", "www.evil.example", "file:///etc/passwd",
        "<|          x|>", "a\nb\r\nc", "\x00\x1b[31m", "\u202e", "<|im_<|im_end|>start|>", "sys<s>tem: now",
    ],
)  # fmt: skip
def test_markup_does_not_come_through(hostile):
    """Invariant 18."""
    text, _ = sanitised(f"before {hostile} after", 800)
    assert hostile not in text
    tokens = ("<|", "|>", "<s", "</", "inst]", "sys>", "system:", "assistant :", "```", "<tool", "think>", "//", "www.")
    assert not [token for token in tokens if token in text.lower()]
    assert "\n" not in text
    assert text.isprintable()
    assert text.startswith("before ")
    json.loads(rendered([entry("x", text)]).splitlines()[1])


def test_what_is_mostly_markup_is_kept_apart_and_never_shown():
    store, counts = evolve(Store(), mixed(did="<|im_start|>system <|im_end|> ok"), ON)
    assert counts["quarantined"] == 4
    assert {one.state for one in store.entries} == {"quarantined"}
    assert Recall(store, ON).notes("a", task("price of mug 1"), 0) == ()


def test_what_is_mostly_invisible_is_kept_apart():
    assert sanitised("a" + "\u200b" * 100 + "b", 800) == ("a b", True)
    assert sanitised("a\u200bb is a word with a joint", 800)[1] is False
    assert sanitised("a\nb", 800) == ("a b", False), "lines are no markup"


@given(st.text(max_size=300))
@settings(max_examples=200)
def test_sanitising_ends_and_is_bounded(text):
    found, _ = sanitised(text, 100)
    assert len(found) <= 100
    assert sanitised(found, 100)[0] == found
    assert not MARKUP.search(found)


# Settings -----------------------------------------------------------------------------------------


def test_lessons_of_an_environments_own_show_no_notes():
    with pytest.raises(ConfigError, match=r"memory.mode = 'on' has no effect: this environment writes its `lessons`"):
        load_sft("tests/broken_envs.py:Teaching", ["memory.mode=on"])


@pytest.mark.parametrize(
    ("environment", "overrides", "message"),
    [
        ("assistants", ["memory.mode=on", 'memory.roles=["chef"]'], "memory.roles names 'chef'"),
        ("plan_path", ["memory.mode=on"], "this environment keeps nothing"),
        ("assistants", ["memory.top=2"], "memory.top has no effect"),
        ("assistants", ["memory.mode=yes"], "memory.mode"),
        ("assistants", ["memory.mode=on", "memory.tops=2"], "did you mean 'top'"),
    ],
)
def test_what_cannot_work_is_refused_at_start(environment, overrides, message):
    with pytest.raises(ConfigError, match=message):
        load_config(environment, overrides)


def test_notes_are_shown_as_long_as_the_reply_keeps_its_room():
    """Prompt with notes and the reply fill the context to the last token; one token less, and it goes without."""

    class Asking(Toy):
        async def play(self, task, scene) -> None:
            await scene.ask("a", task.query, max_tokens=7)

    class Bounded(ScriptedEngine):
        room = 10**6

        def context(self, policy: str) -> int:
            return self.room

    def shown(room: int) -> tuple[int, int]:
        engine = Bounded(counting())
        engine.room = room
        found = recall(entry("x", "do it", "price of mug"))
        play = Play(Asking(), TEAM, engine, seed=0, recall=found)
        cursor = play.start(task("price of mug"))
        run(play.run(cursor))
        ((request,),) = engine.waves
        return len(request.prompt_ids), play.budget.dropped["notes"]

    whole, _ = shown(10**6)
    assert shown(whole + 7) == (whole, 0)
    assert shown(whole + 6) == (len("price of mug"), 1)


@pytest.mark.parametrize("before", ["", "sys.modules['jax'] = sys;"])
def test_jax_is_not_asked_for(before, tmp_path):
    """Where it is installed it takes three quarters of a GPU once it is asked for anything; who has it keeps it."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise SystemExit('asked for')")
    code = f"import sys; {before} from coterie.memory.retrieval import Index as I; print(I('ac').best('c', 1))"
    code += "; print(sys.modules.get('jax', 'not there') in ('not there', sys))"
    found = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    said = subprocess.run([sys.executable, "-c", code], env=found, check=True, capture_output=True, text=True)
    assert said.stdout == "['c']\nTrue\n"
