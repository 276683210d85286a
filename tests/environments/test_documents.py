"""documents: its facts, its tasks, who sees what, what replies earn, and that the data are made as is documented."""

import json
from collections import Counter

import pytest

from coterie import load_config
from coterie.checks.conformance import check
from coterie.errors import ConfigError
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import SPLITS, split_of
from coterie.kernel.episode import text_of
from coterie.kernel.scene import Reply
from coterie_worlds.documents.documents import (
    COUNTRIES,
    EXAMPLE,
    CountryQuestion,
    Documents,
    countries_in,
    questions_of,
)
from coterie_worlds.documents.factbook import countries, facts_of
from tests.toys import run

QUESTION = CountryQuestion(
    "t",
    "train",
    country="Kenya",
    clue="capital",
    number="median age",
    clues=(("Chad", (("capital", "N'Djamena"),)), ("Kenya", (("capital", "Nairobi"),))),
    numbers=(("Kenya", (("median age", "19"),)), ("Chad", (("median age", "17"),))),
)
PROFILE = {
    "Government": {
        "Country name": {"conventional short form": {"text": "The Gambia"}},
        "Capital": {"name": {"text": "Banjul; note - moved"}},
        "Independence": {"text": "18 February 1965 (from the UK)"},
    },
    "Geography": {"Elevation extremes": {"highest point": {"text": "K2 (Mt. Godwin-Austen) 8,611 m"}}},
    "People and Society": {"Median age": {"total": {"text": "20.5 years"}}},
    "Transportation": {"Airports": {"text": "1,714 (2013)"}},
}


def played(world: Documents, *replies: tuple[str, str]) -> Cursor:
    """An episode in which the roles give these replies, each with the way it ended."""
    cursor = Cursor(world, QUESTION, 0)
    for text, finish in replies:
        (role,) = run(cursor.advance()).roles
        cursor.answer({role: Reply(role, text, finish)})
    assert run(cursor.advance()) is None
    return cursor


@pytest.mark.parametrize(
    ("text", "finish", "named"),
    [
        ("Kenya", "stop", {"Kenya"}),
        ("It is south sudan.", "stop", {"South Sudan"}),
        ("Sudan, South Sudan", "stop", {"Sudan", "South Sudan"}),
        ("Guinea-Bissau", "stop", {"Guinea-Bissau"}),
        ("Nigerian", "stop", set()),
        ("Kenya is", "length", {"Kenya"}),
        ("Niger", "length", set()),  # Nigeria, perhaps
        ("Guinea-", "length", set()),
        ("Guinea-B", "length", set()),
        ("", "stop", set()),
    ],
)
def test_the_countries_of_a_reply_are_those_named_in_full(text, finish, named):
    assert countries_in(Reply("geographer", text, finish), "Nairobi") == named


def test_a_country_in_the_fact_that_is_asked_about_is_not_named():
    reply = Reply("geographer", "Port of Spain is the capital of Trinidad and Tobago.")
    assert countries_in(reply, "Port of Spain") == {"Trinidad and Tobago"}


@pytest.mark.parametrize(
    ("message", "answer", "geographer", "team", "ending"),
    [
        (("Kenya", "stop"), ("19", "stop"), 1.0, 1.0, "solved"),
        (("Kenya.", "length"), ("It is 19.", "stop"), 0.5, 0.5, "solved"),
        (("Kenya", "stop"), ("19 years", "length"), 1.0, 0.5, "cut"),
        (("Kenya", "stop"), ("19", "length"), 1.0, 0.0, "no single number"),
        (("Chad", "stop"), ("17", "stop"), 0.0, 0.0, "another number"),
        (("Kenya or Chad", "stop"), ("19 or 17", "stop"), 0.0, 0.0, "no single number"),
    ],
)
def test_what_an_episode_pays(message, answer, geographer, team, ending):
    log = played(Documents(), message, answer).log
    assert log.rewards() == {"geographer": geographer, "team": team}
    assert log.outcome.reason == ending
    assert played(Documents(dense=False), message, answer).log.rewards() == {"team": team}


def test_luck_after_a_wrong_country_solves_the_task_and_is_not_paid():
    """Else a statistician learns where on a page to guess before the geographer is right."""
    lucky = (("Chad", "stop"), ("19", "stop"))
    for world, team in ((Documents(), 0.0), (Documents(dense=False), 1.0)):
        log = played(world, *lucky).log
        assert log.solved
        assert log.rewards()["team"] == team
    assert played(Documents(solo=True, view="full"), ("19", "stop")).log.rewards() == {"team": 1.0}


def test_each_role_sees_its_own_page():
    cursor = Cursor(Documents(example=False), QUESTION, 0)
    assert text_of(run(cursor.advance()).asked.prompts["geographer"]) == (
        "[system] Answer with one name.\n[user] N'Djamena is the capital of Chad.\nNairobi is the capital of Kenya.\n"
        "Nairobi is the capital of which country?"
    )
    cursor.answer({"geographer": Reply("geographer", "Kenya\nis it")})
    assert text_of(run(cursor.advance()).asked.prompts["statistician"]) == (
        "[system] Answer with one number.\n[user] The median age of Kenya is 19.\nThe median age of Chad is 17.\n"
        "Nairobi is the capital of a country. The geographer says which: Kenya is it\n"
        "What is the median age of that country?"
    )


@pytest.mark.parametrize(("view", "sees"), [("split", False), ("full", True)])
@pytest.mark.parametrize("solo", [True, False])
def test_view_and_solo_are_the_controls(view, sees, solo):
    world = Documents(view=view, solo=solo)
    cursor = Cursor(world, QUESTION, 0)
    if not solo:
        run(cursor.advance())
        cursor.answer({"geographer": Reply("geographer", "hm")})
    question = text_of(run(cursor.advance()).asked.prompts["statistician"]).rpartition("[user]")[2]
    assert ("Nairobi is the capital of Kenya." in question) == sees
    assert ("The geographer says which: hm" in question) == (not solo)
    assert world.task("test", 3) == Documents().task("test", 3)  # who sees what changes no task


def test_a_geographer_that_is_not_there_has_no_reward_to_set():
    with pytest.raises(ConfigError, match=r"solo = true has no geographer"):
        load_config("documents", ["policies.team.model=starter", "environment.solo=true", "environment.dense=false"])


def test_no_country_of_one_split_is_on_a_page_of_another():
    for split in SPLITS:
        for index in range(300):
            task = Documents().task(split, index)
            pages = {name for name, _ in task.clues} | {name for name, _ in task.numbers}
            assert len(pages) == 4
            assert {split_of(name) for name in pages} == {split}


SIZES = {"train": 2614, "validation": 335, "test": 288}
"""Questions of each split."""


def test_every_question_comes_once_before_any_comes_again():
    assert {split: len(questions_of(split)) for split in SPLITS} == SIZES
    for split in ("validation", "test"):
        tasks = [Documents().task(split, index) for index in range(len(questions_of(split)) + 50)]
        first = {(task.country, task.clue, task.number) for task in tasks[:-50]}
        assert len(first) == len(questions_of(split))
        assert len({(task.clues, task.numbers, task.clue, task.number) for task in tasks}) == len(tasks)


@pytest.mark.parametrize("settings", [{}, {"countries": 8, "facts": 3}, {"countries": 2, "facts": 1}])
def test_one_country_of_a_page_has_what_is_asked(settings):
    world = Documents(**settings)
    for index in range(200):
        task = world.task("test", index)
        told = dict(dict(task.clues)[task.country])[task.clue]
        assert [name for name, facts in task.clues if dict(facts).get(task.clue) == told] == [task.country]
        numbers = [dict(facts)[task.number] for _, facts in task.numbers]
        assert len({*numbers}) == len(numbers) == world.countries
        assert task.right == COUNTRIES[task.country][task.number]
        assert {name for name, _ in task.clues} == {name for name, _ in task.numbers}


def test_where_a_country_stands_tells_nothing():
    places = Counter(
        [name for name, _ in task.numbers].index(task.country)
        for task in (Documents().task("train", index) for index in range(400))
    )
    assert all(70 < places[place] < 130 for place in range(4))


def test_the_example_is_of_no_country():
    assert not {name for name, _ in (*EXAMPLE.clues, *EXAMPLE.numbers)} & {*COUNTRIES}
    assert EXAMPLE.right == 31


def test_facts_are_read_from_a_profile_of_the_factbook(tmp_path):
    facts = {"capital": "Banjul", "highest point": "K2", "year of independence": 1965, "median age": 20,
             "number of airports": 1714}  # fmt: skip
    assert facts_of(PROFILE) == ("Gambia", facts)
    city = {**PROFILE, "Government": {**PROFILE["Government"], "Capital": {"name": {"text": "Gambia City"}}}}
    assert "capital" not in facts_of(city)[1]
    (tmp_path / "africa").mkdir()
    more = PROFILE | {"Communications": {"Internet users": {"percent of population": {"text": "14.1% (2014 est.)"}}}}
    few = PROFILE | {
        "Government": {**PROFILE["Government"], "Country name": {"conventional short form": {"text": "Few"}}}
    }
    for name, profile in (("ga", more), ("few", few)):
        (tmp_path / "africa" / f"{name}.json").write_text(json.dumps(profile))
    assert countries(tmp_path) == {"Gambia": facts | {"percentage of Internet users": 14}}


@pytest.mark.parametrize("settings", [{}, {"solo": True, "view": "full"}])
def test_it_keeps_the_contract(settings):
    report = check(Documents(**settings), tasks=2)
    assert report.ok, report
