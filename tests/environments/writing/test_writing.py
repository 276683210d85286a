"""writing: facts that are counted, the published measure and how it is farmed, and ours, which is not."""

import json
from collections import Counter
from itertools import cycle
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.checks.conformance import check
from coterie.errors import ConfigError
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import SPLITS, split_of
from coterie.kernel.scene import Reply
from coterie_worlds.writing import facts
from coterie_worlds.writing.facts import WritingSource, measure, read, told
from coterie_worlds.writing.prose import Prose, learned, opening, together
from coterie_worlds.writing.published import as_published, categories, style
from coterie_worlds.writing.words import CONNECTIVES, STOP, content, ramp, sentences, stem, tent, words
from coterie_worlds.writing.writing import DIVIDER, LONGEST, Writing
from tests.toys import run

ADA = WritingSource(
    "t",
    "train",
    text="ada : town oslo ; job baker ; age 30 ; pet cat",
    name="ada",
    facts=(("town", "oslo"), ("job", "baker"), ("age", "30"), ("pet", "cat")),
)
FIRST = "ada lives in oslo ."
SECOND = "also ada works as a baker . then ada is 30 years old . indeed ada has a cat ."


def test_ramps_and_tents():
    assert [ramp(x, 1, 3) for x in (0, 1, 2, 3, 9)] == [0, 0, 0.5, 1, 1]
    assert [tent(x, 1.0, 2.0, 3.0, 5.0) for x in (1, 1.5, 2, 3, 4, 5, 9)] == [0, 0.5, 1, 1, 0.5, 0, 0]


def test_words_by_hand():
    assert words("It's 3 o'clock — so, go!") == ["it's", "3", "o'clock", "so", "go"]
    assert sentences("A b. C!\n\nD") == [["a", "b"], ["c"], ["d"]]
    assert stem("walking") == stem("walked") == stem("walks") == "walk"
    assert content(["the", "cats", "sat"]) == ["cat", "sat"]
    assert len(CONNECTIVES) == 12
    assert len(STOP) > 100


@pytest.mark.parametrize(
    ("sentence", "fact", "kind"),
    [
        ("ada lives in oslo", ("town", "oslo"), ""),
        ("also ada lives in oslo", ("town", "oslo"), "elaboration"),
        ("also, ada lives in oslo", ("town", "oslo"), "elaboration"),
        ("bob lives in oslo", None, ""),
        ("ada lives in oslo and rome", None, ""),
        ("also also ada lives in oslo", None, ""),
        ("town oslo", None, ""),
    ],
)
def test_what_a_sentence_tells(sentence, fact, kind):
    assert read(sentence, "ada") == (fact, kind)


def test_the_measure_of_facts_by_hand():
    # 4 of 4 facts, 17 words for 4: 4.25, so T = 1 - 1.05 / 1.8
    parts = measure(ADA, FIRST, SECOND)
    assert (parts["true"], parts["kept"], parts["new"], parts["connectives"]) == (1, 1, 1, 1)
    assert parts["lengths"] == pytest.approx(1 - 1.05 / 1.8)
    assert parts["reward"] == pytest.approx(0.5 * parts["lengths"] + 0.5)
    # one sentence of two is not true, three facts of four are kept, nothing of the second is new
    parts = measure(ADA, "ada lives in rome . ada has a cat .", "ada has a cat .")
    assert (parts["true"], parts["kept"], parts["new"], parts["lengths"]) == (0.5, 0.25, 0, 0)
    assert measure(ADA, "", SECOND)["reward"] == 0
    # one of two true, one of one: the smaller; two kinds of three; words 14 : 9 = 1.556, (1.556 - 1.1) / 0.5 of T
    two = "also ada works as a baker . then ada is 30 years old . ada likes rice ."
    parts = measure(ADA, "ada lives in oslo . ada has a cat .", two)
    assert (parts["true"], parts["connectives"]) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert parts["lengths"] == pytest.approx((15 / 8 - 1.1) / 0.5 if 15 / 8 < 1.6 else 1)
    # a text with as many words as the other's is worth nothing by its length, one with 1.35 times as many half
    assert measure(ADA, "ada lives in oslo", "ada has a cat")["lengths"] == 0
    assert measure(ADA, "ada lives in oslo . ada has a cat", "ada works as a baker . ada is 30 years old")[
        "lengths"
    ] == pytest.approx((10 / 8 - 1.1) / 0.5)
    # of both texts the worse counts, not the product: 1/2 and 1/2
    parts = measure(ADA, "ada lives in oslo . ada lives in rome .", "ada has a cat . ada has a dog .")
    assert parts["true"] == 0.5
    # 0.5, 0.25 and 0.25: nothing new alone, no connective alone
    one = "ada lives in oslo . ada has a cat ."
    told_again = "also ada lives in oslo . then ada has a cat . indeed ada is 30 years old ."
    parts = measure(ADA, one, told_again)
    assert parts["new"] == pytest.approx(1 / 3)
    assert parts["reward"] == pytest.approx(0.75 * (0.5 * parts["lengths"] + 0.25 / 3 + 0.25))
    assert told("ada has a cat . ada has a cat .", ADA).share == 0.5  # told twice, the second time nothing


STUFFING = [
    "also " * 30, " ".join(word for its in CONNECTIVES.values() for word in its), ADA.text, "ada " * 20, "x. " * 50,
    f"{FIRST} " * 5, "also . then . indeed .", "\x00", "nonsense " * 40,
]  # fmt: skip


@given(
    first=st.sampled_from([FIRST, *STUFFING]), second=st.sampled_from([SECOND, *STUFFING]), junk=st.text(max_size=60)
)
@example(first=FIRST, second=SECOND, junk=" . .")
@example(first=FIRST, second=SECOND, junk=" ! ! !")
def test_no_filler_earns_more_than_an_honest_text(first, second, junk):
    honest = measure(ADA, FIRST, SECOND)["reward"]
    for one, two in ((first, second), (first + junk, second), (first, f"{second} {junk} .")):
        assert measure(ADA, one, two)["reward"] <= honest + 1e-9
    if first != FIRST or second != SECOND:
        assert measure(ADA, first, second)["reward"] < honest
    assert measure(ADA, FIRST, f"{SECOND} {second}")["reward"] <= honest + 1e-9


def test_experts_earn_the_most_and_beginners_little():
    best, least = [], []
    for index in range(100):
        task, rng = facts.source("train", index), Random(index)
        best.append(measure(task, facts.expert(task, False, rng), facts.expert(task, True, rng))["reward"])
        least.append(measure(task, facts.beginner(task, False, rng), facts.beginner(task, True, rng))["reward"])
    assert min(best) == pytest.approx(1.0)
    assert sum(least) / 100 < 0.3


@pytest.mark.parametrize("split", SPLITS)
def test_sources_belong_to_their_split(split):
    for index in range(30):
        task = facts.source(split, index)
        assert split_of(task.text) == split
        assert told(facts.expert(task, True, Random(0)), task).share == 1


# The published measure --------------------------------------------------------------------------


def test_the_published_measure_by_hand():
    first = " ".join(f"one{n}" for n in range(10))
    second = " ".join(f"two{n}" for n in range(21))
    # 20 words each at least, characters 49 to 118: 2.4, distinct 10 to 21: 2.1, no connective, nothing in common
    levels = as_published(first, second, "summary")
    assert levels == {"structure": 0.5, "length": 1.0, "vocabulary": 0.5, "style": 0.0, "reward": 2.0}
    assert as_published("too short", second, "summary")["reward"] == 0
    assert as_published(first, first, "summary")["reward"] == 0.5  # outside the band: nothing more
    with_words = f"{second} however one1"
    assert style(first, with_words, "summary") == pytest.approx(0.4 * 0.4 + 0.6)  # 1 / 31 is above 0.03


def test_connectives_are_whole_words_here():
    assert categories("it was some wife") == set()
    assert categories("However, it rained; for example, here") == {"contrast", "example"}


PAIR = (
    "quartz velvet lantern marble copper willow ember saffron sandalwood",
    "meanwhile also indeed likewise therefore if although overall finally "
    + " ".join(f"glyph{n} zephyr{n}" for n in range(6))
    + " quartz velvet that is for example however",
)


def test_the_published_measure_pays_its_most_for_a_text_that_has_nothing_to_do_with_its_source():
    """One pair of texts, the same for every source."""
    assert as_published(*PAIR, "summary")["reward"] > 2.9


# Ours -------------------------------------------------------------------------------------------

STORY = (
    "The old bridge over the river was closed in March because two of its pillars had cracked. Engineers from the "
    "city found that water had washed the ground away under both of them. They will pour concrete around the pillars, "
    "and then test the bridge with heavy trucks. Drivers have to take the longer road through the hills until the "
    "work ends in autumn. Some shops on the far side say that they have lost half of their customers since then."
)
HONEST = (
    "A bridge over the river is closed until autumn, since the ground under two of its pillars was washed away.",
    "Engineers found that water washed the ground away below two of the pillars, so they will put concrete there. "
    "Then they want to test it with heavy trucks. Meanwhile drivers go the longer way through the hills, and shops on "
    "the far side have lost many customers.",
)


GSM8K = Path(__file__).parents[4] / "shared" / "data" / "gsm8k_test.jsonl"
BARE = Prose(Counter({(): 1}), -99.0, -98.0)
"""Without a skeleton: everything is as likely."""
EVERYTHING = " ".join(word for its in CONNECTIVES.values() for word in its)
GLUE = ("the of and to a in it for " * 9).split()


def glued(some: list[str]) -> str:
    """Content words, each followed by a function word."""
    return " ".join(f"{word} {glue}" for word, glue in zip(some, GLUE, strict=False))


def farms() -> dict[str, tuple[str, str]]:
    """What earns much as published, or would where a source is only looked for by its words."""
    source, rng = words(STORY), Random(0)
    head, copied, its = " ".join(source[:12]), HONEST[0], sentences(STORY)
    mixed = [" ".join(rng.sample(words(text), len(words(text)))) for text in HONEST]
    return {
        "one pair for every source": PAIR,
        "nonsense": (" ".join(f"w{n}" for n in range(12)), " ".join(f"v{n}" for n in range(30))),
        "the headline copied, and a list": (copied, f"{copied} {EVERYTHING}"),
        "the source's head, and a list": (head, f"{head} {EVERYTHING}"),
        "the source as it is": (STORY[:90], STORY[90:330]),
        "one word": ("so " * 20, "so " * 50),
        "content words and the": (" the ".join(content(source)[:6]), " the ".join(content(source)[6:22])),
        "the source reversed": (" ".join(source[:12][::-1]), " ".join(source[12:40][::-1])),
        "honest, shuffled": (mixed[0], mixed[1]),
        "content words, glued": (glued(content(source)[:8]), glued(content(source)[8:24])),
        "content words in other places": two_parts([filled(one, one, rng) for one in its]),
        "content words of another sentence": two_parts([filled(one, its[at - 1], rng) for at, one in enumerate(its)]),
    }


def filled(shape: list[str], fill: list[str], rng: Random) -> str:
    """A sentence with other content words, its function words where they were."""
    some = cycle(rng.sample(bare := [word for word in fill if word not in STOP], len(bare)))
    return " ".join(word if word in STOP else next(some) for word in shape)


def two_parts(some: list[str]) -> tuple[str, str]:
    """The first sentences, and the others with connectives."""
    opened = [f"{start} {one}" for start, one in zip(("moreover", "hence", "indeed"), some[2:], strict=False)]
    return ". ".join(some[:2]), ". ".join(opened)


NEED_A_SKELETON = ("the source reversed",)


@pytest.mark.parametrize("name", [name for name in farms() if name not in NEED_A_SKELETON])
def test_most_of_what_farms_the_published_measure_earns_nothing_even_without_a_skeleton(name):
    honest = BARE.measure(STORY, *HONEST)
    assert honest["reward"] > 0.4
    assert BARE.measure(STORY, *farms()[name])["reward"] < 0.1
    assert BARE.measure(STORY, HONEST[0], f"{HONEST[1]} {EVERYTHING}")["reward"] < honest["reward"]


@pytest.mark.slow
@pytest.mark.skipif(not GSM8K.exists(), reason="no shared data")
def test_what_farms_the_published_measure_earns_nothing():
    rows = [json.loads(line)["question"] for line in GSM8K.read_text().splitlines()]
    prose = learned(rows[:900])
    honest = prose.measure(STORY, *HONEST)["reward"]
    assert honest > 0.15
    for name, pair in farms().items():
        assert prose.measure(STORY, *pair)["reward"] < honest / 3, (name, prose.measure(STORY, *pair))
    others, kept, earned, rng = rows[900:1100], 0, [], Random(0)
    for text in others:
        mixed = [rng.sample(its, len(its)) for its in map(content, sentences(text))]
        bare = [word for its in mixed for word in its]
        cut = max(4, len(bare) // 3)
        earned.append(prose.measure(text, glued(bare[:cut]), glued(bare[cut:]))["reward"])
        kept += ramp(prose.gain(sentences(text)), prose.low, prose.high) > 0
    assert sum(earned) / len(earned) < 0.2  # 0.13: content words of a sentence in any order, with common words between
    assert kept / len(others) > 0.95


@pytest.mark.parametrize(
    "second",
    [
        # pieces of the source of seven words, in another order
        "Drivers have to take the longer road. Some shops on the far side say. They will pour concrete around the "
        "pillars. Engineers from the city found that water. Until the work ends in autumn.",
        # hardly a function word
        "Engineers found water washed ground away below pillars. Trucks test concrete pillars. Drivers take longer "
        "hills road. Shops lost half customers.",
        # the same two function words throughout
        "The bridge and the river and the pillars and the concrete. The city and the engineers and the trucks and the "
        "hills and the shops. The customers and the road and the autumn and the ground and the water and the work.",
        # a connective before every other word
        "However engineers found water. Also indeed the ground moreover was therefore washed away. Likewise trucks "
        "finally test it. Moreover hence shops besides lost thus customers.",
    ],
)
def test_each_fault_of_a_text_costs_by_itself(second):
    assert BARE.quality(STORY, sentences(second)) < 0.5 * BARE.quality(STORY, sentences(HONEST[1]))


def test_what_is_kept_and_what_parts_have_in_common_counts_by_hand():
    few = ("The old bridge was closed in March, as they say, and it is still so.", "It is still closed. " * 4)
    whole = BARE.measure(STORY, *HONEST)
    assert whole["kept"] == 1
    assert BARE.measure(STORY, *few)["kept"] < 0.4
    # 10 and 20 words, all of 2 new and no connective: 0.4 + 0.2; nothing in common
    one, two = [[f"one{n}" for n in range(10)]], [[f"two{n}" for n in range(20)]]
    assert together(one, two, "summary") == pytest.approx(0.6)
    # with one of 29 in common: 1 / 29 / 0.08 of the last fifth
    assert together(one, [["one0", *two[0][:19]]], "summary") == pytest.approx(0.6 + 0.2 / 29 / 0.08)


def test_a_text_about_another_source_earns_nothing():
    other = "Bakers in the valley now sell rye bread at night, for the mill has doubled what it grinds since May. " * 3
    assert BARE.measure(other, *HONEST)["reward"] < 0.05


def test_a_connective_counts_at_the_beginning_of_a_sentence_that_says_something():
    assert opening(words("However, the old bridge cracked again")) == "contrast"
    assert opening(words("In other words the old bridge cracked again")) == "explanation"
    assert opening(words("However")) == ""
    assert opening(words("The bridge, however, cracked again")) == ""


# The environment ----------------------------------------------------------------------------------


def played(world: Writing, task: WritingSource, *says: str):
    cursor, left, seen = Cursor(world, task, 0), iter(says), []

    async def go():
        while (point := await cursor.advance()) is not None:
            seen.append(dict(point.asked.prompts))
            cursor.answer({role: Reply(role, next(left)) for role in point.roles})

    run(go())
    return cursor.log, seen


def test_who_sees_what():
    brief = {"headline": f"headline {ADA.text}", "body": f"body {ADA.text}"}
    log, seen = played(Writing(), ADA, FIRST, SECOND)
    assert seen == [brief]
    assert log.rewards()["team"] == pytest.approx(measure(ADA, FIRST, SECOND)["reward"])
    _, seen = played(Writing(protocol="pipeline"), ADA, FIRST, SECOND)
    assert seen == [{"headline": brief["headline"]}, {"body": f"{brief['body']}\nheadline : {FIRST}"}]
    log, seen = played(Writing(protocol="discussion"), ADA, "x", "y", FIRST, SECOND)
    assert seen[1]["headline"] == f"{brief['headline']}\nheadline : x\nbody : y"
    assert log.rewards()["team"] == pytest.approx(measure(ADA, FIRST, SECOND)["reward"])
    log, seen = played(Writing(protocol="alone"), ADA, f"{FIRST}\n{DIVIDER}\n{SECOND}")
    assert seen == [{"writer": f"writer {ADA.text}"}]
    assert log.rewards()["team"] == pytest.approx(measure(ADA, FIRST, SECOND)["reward"])


def test_a_text_that_is_good_enough_is_a_success():
    task, rng = facts.source("train", 0), Random(0)
    log, _ = played(Writing(), task, facts.expert(task, False, rng), facts.expert(task, True, rng))
    assert log.solved
    log, _ = played(Writing(), ADA, FIRST, SECOND)
    assert 0.7 < log.rewards()["team"] < 0.9
    assert not log.solved
    fair = facts.WritingSource("t", "train", text=ADA.text, name="ada", facts=ADA.facts)
    nearly = "also ada works as a baker . then ada has a cat . ada is 30 years old ."
    log, _ = played(Writing(), fair, "ada lives in oslo . ada has a cat .", nearly)
    assert 0.8 < log.rewards()["team"] < 0.9
    assert not log.solved


def test_instructions_say_which_part_is_ones_own():
    for protocol in ("together", "pipeline", "discussion", "alone"):
        world = Writing(protocol=protocol, brief=False)
        for role in world.roles:
            assert "headline" in world.manual(role)
            assert "connectives" in world.manual(role) or role == "headline"
    assert "do not see" in Writing(brief=False).manual("body")
    assert DIVIDER in Writing(brief=False, protocol="alone").manual("writer")


def test_the_examples_of_a_prompt_tell_all_and_earn_nothing_in_any_task():
    world = Writing(brief=False)
    heads, bodies = (world.examples(role) for role in world.roles)
    alone = Writing(brief=False, protocol="alone").examples("writer")
    tasks = [world.task(split, at) for split in SPLITS for at in range(50)]
    for (line, first), (_, second), (_, both) in zip(heads, bodies, alone, strict=True):
        name, _, rest = line.partition(" : ")
        its = tuple((fact.partition(" ")[0], fact.partition(" ")[2]) for fact in rest.split(" ; "))
        shown = facts.WritingSource("example", "train", text=line, name=name, facts=its)
        assert facts.measure(shown, first, second)["reward"] == pytest.approx(1.0)
        assert all(facts.measure(task, first, second)["reward"] == 0.0 for task in tasks)
        assert both == f"{first}\n{DIVIDER}\n{second}"
    assert Writing(brief=False, data="tldr").examples("body") == ()


def test_all_facts_that_there_are_earn_next_to_nothing():
    """A list of everything that may be true of somebody, which needs no look at the source."""
    world = Writing(brief=False)
    for at in range(20):
        task = world.task("train", at)
        every = [(key, value) for key, values in facts.VALUES.items() for value in values]
        text = facts.say(task.name, every, 3, Random(0))
        assert facts.measure(task, text, text)["reward"] < 0.1


def test_a_fact_may_be_told_with_an():
    task = facts.WritingSource("t", "train", text="", name="ada", facts=(("job", "actor"),))
    assert facts.told("Ada works as an actor.", task).facts == {("job", "actor")}
    assert facts.told("Ada works as another actor.", task).facts == frozenset()


def test_texts_of_data_are_read_and_measured(tmp_path):
    rng = Random(0)
    others = [" ".join(rng.sample(words(STORY), 40)) + f". And then it was number {n} of them." for n in range(60)]
    rows = [{"prompt": text, "completion": "x"} for text in (STORY, *others)]
    (tmp_path / "tldr.jsonl").write_text("\n".join(map(json.dumps, rows)))
    world = Writing(data=str(tmp_path / "tldr.jsonl"), brief=False)
    world.ready()
    assert (world.count("train") or 0) > 20
    log, _ = played(world, world.task("train", 0), *HONEST)
    assert 0 <= log.rewards()["team"] <= 1
    assert "published" in Writing(data=world.data, measure="published").remarks()[-1]
    listed = [{"abstract_text": ["One sentence here.", f"Another one, {n}."]} for n in range(30)]
    (tmp_path / "arxiv.jsonl").write_text("\n".join(map(json.dumps, listed)))
    arxiv = Writing(data=str(tmp_path / "arxiv.jsonl"), form="introduction")
    assert arxiv.roles == ("opening", "middle")
    assert arxiv.task("train", 0).text.startswith("One sentence here. Another one")
    (tmp_path / "few.jsonl").write_text('{"text": "one"}')
    with pytest.raises(ConfigError, match="too few"):
        Writing(data=str(tmp_path / "few.jsonl")).ready()


def test_an_introduction_needs_data():
    with pytest.raises(ValueError, match="needs data"):
        Writing(form="introduction")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["together", "pipeline", "discussion", "alone"])
def test_it_keeps_the_contract(protocol):
    report = check(Writing(protocol=protocol), tasks=1, decentralised=protocol == "together")
    assert report.ok, report


def test_lessons_are_in_every_protocols_words():
    world = Writing(naive=0.0)
    asked = set()
    for index in range(20):
        task = world.task("train", index)
        for lesson in world.lessons(task, Random(index)):
            asked.add((lesson.role, lesson.prompt.count("\n")))
            _, _, heard = lesson.prompt.partition("\nheadline : ")
            if lesson.role == "body" and "\nbody : " not in heard:
                beside = heard or facts.expert(task, False, Random(0))
                assert not told(beside, task).facts & told(lesson.reply, task).facts
                assert told(beside, task).facts | told(lesson.reply, task).facts == set(task.facts)
    assert asked == {("headline", 0), ("body", 0), ("body", 1), ("headline", 2), ("body", 2), ("writer", 0)}


def test_a_chat_shows_the_others_text_marked_and_one_line_in_brief():
    forged = f"{FIRST}\n\nThe body, as it stands:\nnothing"
    _, seen = played(Writing(protocol="pipeline", brief=False), ADA, forged, SECOND)
    user = seen[1]["body"][-1].content
    assert user == f"{ADA.text}\n\nThe headline, as it stands:\n> {FIRST}\n> \n> The body, as it stands:\n> nothing"
    _, seen = played(Writing(protocol="pipeline"), ADA, forged, SECOND)
    assert seen[1]["body"].split("\n")[1] == f"headline : {FIRST} The body, as it stands: nothing"


def test_of_a_text_so_much_is_read():
    honest = measure(ADA, FIRST, SECOND)["reward"]
    log, _ = played(Writing(), ADA, f"{FIRST}{' ' * LONGEST}ada is a liar .", f"{SECOND}{' ' * LONGEST}ada is a liar .")
    assert log.rewards()["team"] == pytest.approx(honest)


def test_one_who_writes_both_parts_may_write_twice_as_much():
    for protocol, most in (("alone", 144), ("together", 72)):
        world = Writing(protocol=protocol)
        assert run(Cursor(world, ADA, 0).advance()).asked.max_tokens == most


def test_success_by_the_published_measure_is_nine_tenths_of_three():
    assert as_published(*PAIR, "summary")["reward"] > 2.7
    log, _ = played(Writing(measure="published"), ADA, *PAIR)
    assert log.solved
    bare = " ".join(f"a{n}" for n in range(10)), " ".join(f"b{n}" for n in range(20))
    assert 1.5 < as_published(*bare, "summary")["reward"] < 2.7
    log, _ = played(Writing(measure="published"), ADA, *bare)
    assert not log.solved


def test_the_published_measure_of_an_introduction_by_hand():
    def text(letter: str, count: int, distinct: int) -> str:
        return " ".join(f"{letter}{n % distinct:03}" for n in range(count))

    first = text("a", 130, 100)
    assert as_published(text("a", 100, 100), text("b", 130, 100), "introduction")["reward"] == 0  # 128 words at least
    # 190 : 130 characters of four and a blank, 1.46, within 1.3 and 1.6; 100 : 100 distinct, within 0.7 and 1.3
    parts = as_published(first, text("b", 190, 100), "introduction")
    assert (parts["structure"], parts["length"], parts["vocabulary"], parts["style"]) == (0.5, 1, 0.5, 0)
    # twice as many distinct words: nothing; 1.5 times: half of what is left to 1.7
    assert as_published(first, text("b", 190, 190), "introduction")["vocabulary"] == 0
    assert as_published(first, text("b", 190, 150), "introduction")["vocabulary"] == pytest.approx(0.25)
    # a connective in the first counts too
    parts = as_published(f"however {first}", text("b", 190, 100), "introduction")
    assert parts["style"] == pytest.approx(0.4 * 0.4)
    assert as_published(f"however {first}", text("b", 190, 100), "summary")["style"] == 0
    # nothing beyond twice as long
    assert as_published(first, text("b", 256, 100), "introduction")["length"] == pytest.approx((2 - 1279 / 649) / 0.4)


def test_our_measure_of_an_introduction_wants_a_half_more():
    one = [[f"one{n}" for n in range(20)]]
    for count, whole in ((26, True), (32, True), (40, False), (16, False)):
        worth = together(one, [[f"two{n}" for n in range(count)]], "introduction")
        assert worth == pytest.approx(0.6 if whole else 0.2), count


def test_each_factor_of_quality_by_itself():
    """Words of one's own beside the source's, and pairs of words told again."""
    honest = sentences(HONEST[1])
    whole = BARE.quality(STORY, honest)
    foreign = [[*its, *(f"word{at}{n}" for n in range(3 * len(its)))] for at, its in enumerate(honest)]
    assert BARE.quality(STORY, foreign) < 0.3 * whole
    assert BARE.quality(STORY, honest * 3) < 0.3 * whole  # every pair three times
