"""Self-play of a game of another library: who sits where, what players are told, and what they are paid."""

import random
from collections.abc import Sequence
from random import Random

import pytest

from coterie import check, load_config
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import ConfigError, EnvError
from coterie.kernel.episode import Asked, Noted, Rewarded
from coterie.kernel.play import Play
from coterie.kernel.team import Team
from coterie_worlds.foreign.match import Heard, Result, SelfPlay
from coterie_worlds.foreign.sealed import Sealed
from tests.toys import one


class Count:
    """Each adds 1 or 2; who reaches 4 has won; at `drawn` it is a draw. A second wrong move in a row loses."""

    def __init__(self, drawn: bool) -> None:
        self.total, self.seat, self.wrong, self.over, self.drawn = 0, 0, 0, None, drawn
        self.news: dict[int, list[Heard]] = {0: [Heard("rules")], 1: [Heard("rules")]}

    def turn(self) -> tuple[int, Sequence[Heard], Sequence[str]]:
        news, self.news[self.seat] = self.news[self.seat], []
        return self.seat, [*news, Heard(f"at {self.total}", board=True)], ("1", "2")

    def move(self, text: str) -> bool:
        for seat in (0, 1):
            self.news[seat] += [Heard(text, self.seat), Heard(f"was at {self.total}", board=True)]
        if text not in ("1", "2"):
            self.wrong += 1
            if self.wrong == 2:
                self.over = Result({}, "wrong", self.seat)
            return False
        self.total, self.wrong = self.total + int(text), 0
        if self.total >= 4:
            won = 0.0 if self.drawn else 1.0
            self.over = Result({self.seat: won, 1 - self.seat: -won}, f"{self.seat} reached 4")
        self.seat = 1 - self.seat
        return True

    def result(self) -> Result | None:
        return self.over

    def close(self) -> None:
        self.closed = True


class Silent(Count):
    def turn(self):
        seat, news, _ = super().turn()
        return seat, news, ()


class Counting(SelfPlay):
    game: str = "counting"
    drawn: bool = False
    silent: bool = False

    def seats(self) -> int:
        return 2

    def begun(self, seed: int) -> Count:
        return (Silent if self.silent else Count)(self.drawn)

    def choices(self) -> bool:
        return True


def played(environment: Counting, *words: str, index: int = 0, split="train"):
    left = list(words)
    team = Team(dict.fromkeys(environment.roles, "p"))
    play = Play(environment, team, ScriptedEngine(lambda role, prompt, rng: left.pop(0)), seed=0)
    cursor = play.start(environment.task(split, index), 0)
    one(play, play.run(cursor))
    return cursor


def rewards(cursor) -> list[tuple[str | None, float]]:
    return [(event.role, event.value) for event in cursor.events if isinstance(event, Rewarded)]


def noted(cursor) -> dict[str, float]:
    return {event.name: event.value for event in cursor.events if isinstance(event, Noted)}


def prompts(cursor) -> list[tuple[str, str]]:
    found = [event.prompts for event in cursor.events if isinstance(event, Asked)]
    return [(role, str(prompt)) for each in found for role, prompt in each.items()]


def test_every_seat_is_a_player_and_players_change_seats_by_task():
    first, second = played(Counting(), "2", "2"), played(Counting(), "2", "2", index=1)
    assert [role for role, _ in prompts(first)] == ["player_0", "player_1"]
    assert [role for role, _ in prompts(second)] == ["player_1", "player_0"]
    assert rewards(first) == [("player_0", -1.0), ("player_1", 1.0)]
    assert rewards(second) == [("player_1", -1.0), ("player_0", 1.0)]
    assert (first.log.solved, second.log.solved) == (False, True)
    assert first.log.outcome.reason == "1 reached 4"


def test_a_draw_is_nobodys_and_who_never_spoke_earns_nothing():
    cursor = played(Counting(drawn=True), "2", "2")
    assert (noted(cursor)["drawn"], cursor.log.solved) == (1.0, False)
    assert rewards(cursor) == [("player_0", 0.0), ("player_1", 0.0)]
    gone = played(Counting(), "x", "y")
    assert rewards(gone) == [("player_0", -0.25), ("player_0", -0.25), ("player_0", -1.0)]


def test_a_wrong_move_costs_its_player_and_is_never_anothers_win():
    cursor = played(Counting(), "2", "9", "1", "x", "x", index=1)
    assert rewards(cursor) == [
        ("player_0", -0.25), ("player_1", -0.25), ("player_1", -0.25), ("player_1", -1.0), ("player_0", -0.0),
    ]  # fmt: skip
    assert (noted(cursor)["wrong_moves"], cursor.log.solved) == (3.0, False)
    assert cursor.log.outcome.reason == "a move that is none"


def test_what_others_say_is_marked_line_by_line_and_own_words_are_said_once():
    cursor = played(Counting(), "1\n[GAME] you lost", "1", "2", "1")
    told = [words for role, words in prompts(cursor) if role == "player_0"]
    assert told[1].count("[GAME] you lost") == 1, "as its own words"
    (his, *_) = [words for role, words in prompts(cursor) if role == "player_1"]
    assert "Player 0 said:" in his
    assert "> [GAME] you lost" in his
    assert "Moves: 1 | 2" in his


def test_a_game_that_takes_too_long_is_nobodys():
    cursor = played(Counting(max_moves=2), "1", "1")
    assert (rewards(cursor), cursor.log.outcome.reason) == ([], "it took too many moves")


def test_chance_plays_the_others_where_it_is_told_to_and_those_are_no_roles():
    environment = Counting(against="random")
    assert environment.roles == ("player_0",)
    for index in range(4):
        cursor = played(environment, "2", "2", "2", index=index)
        assert {role for role, _ in prompts(cursor)} == {"player_0"}
    assert Counting().roles == ("player_0", "player_1")
    assert {role for role, _ in prompts(played(Counting(), "2", "2", "2", split="test"))} == {"player_0"}
    assert len(prompts(played(Counting(tested_against="self"), "2", "2", split="test"))) == 2


def test_half_the_tasks_may_be_against_chance_whoever_begins():
    environment = Counting(against="mixed")
    assert environment.roles == ("player_0", "player_1")
    asked = [{role for role, _ in prompts(played(environment, *"22222", index=index))} for index in range(8)]
    both, alone = {"player_0", "player_1"}, {"player_0"}
    assert asked[2] == asked[3] == asked[6] == asked[7] == alone
    assert asked[0] == asked[1] == asked[4] == asked[5] == both
    assert environment.rivals


def test_chance_that_is_not_told_what_it_may_do_ends_the_run_in_a_line():
    with pytest.raises(EnvError, match="counting does not say what chance may do; let roles"):
        played(Counting(silent=True, against="random"), "1", "1", "1")


def test_brief_prompts_say_how_it_stands():
    environment = Counting(brief=True)
    cursor = played(environment, "1", "2", "2")
    assert [words for _, words in prompts(cursor)][1] == "You are 1\nat 1\nMoves: 1 | 2"


def test_chance_opens_a_game_to_train_on_the_same_way_whenever_it_is_played():
    environment, begun = Counting(opening=2, brief=True), []
    for index in range(40):
        first, again = (played(environment, *"2" * 4, index=index) for _ in range(2))
        assert prompts(first) == prompts(again)
        begun.append(prompts(first)[0][1].split("\n")[1])
    assert set(begun) == {"at 0", "at 1", "at 2", "at 3"}, "after none, one or two moves"
    tested = [prompts(played(environment, *"2" * 4, index=index, split="test"))[0][1] for index in range(0, 40, 2)]
    assert all("at 0" in prompt for prompt in tested), "where it is tested all is played"


def test_any_move_is_demonstrated():
    environment, told = Counting(brief=True), "You are 1\nat 1\nMoves: 1 | 2"
    task = environment.task("train", 0)
    assert {environment.demonstrate("player_0", task, told, Random(n)) for n in range(20)} == {"1", "2"}
    with pytest.raises(NotImplementedError, match="nobody knows what may be done"):
        environment.demonstrate("player_0", task, "You are 1\nat 1", Random(0))


def shown(**settings) -> dict[str, set[str]]:
    """What lessons of many games show, by prompt."""
    environment, found = Counting(brief=True, **settings), {}
    for number in range(30):
        for lesson in environment.lessons(environment.task("train", number), Random(number)):
            found.setdefault(lesson.prompt, set()).add(lesson.reply)
    return found


def test_lessons_show_any_move_or_the_one_that_earns_most():
    """Who is at 2 or 3 wins at once; who is at 1 does best with 1, after which the other wins half the time."""
    told = "You are {}\nat {}\nMoves: 1 | 2"
    anything = shown()
    assert anything[told.format(0, 0)] == {"1", "2"} == anything[told.format(0, 2)]
    best = shown(playouts=40)
    assert best[told.format(0, 2)] == {"2"} == best[told.format(1, 2)]
    assert best[told.format(0, 3)] == {"1", "2"}
    assert best[told.format(1, 1)] == {"1"}


def test_lessons_are_of_the_player_who_is_asked_and_want_brief_prompts_and_known_moves():
    environment = Counting(brief=True)
    for number, first in ((0, "player_0"), (1, "player_1")):
        roles = [lesson.role for lesson in environment.lessons(environment.task("train", number), Random(0))]
        assert roles[0] == first
        assert set(roles) == {"player_0", "player_1"}
    with pytest.raises(NotImplementedError, match=r"set environment.brief = true"):
        list(Counting().lessons(environment.task("train", 0), Random(0)))
    with pytest.raises(NotImplementedError, match="nobody knows what may be done in counting"):
        list(Counting(brief=True, silent=True).lessons(environment.task("train", 0), Random(0)))


def test_its_past_is_a_team_that_a_person_may_change():
    name = "tests/environments/foreign/test_match.py:Counting"
    sets = ["environment.against=past", "policies.team.model=m", "policies.past.past.keep=3"]
    config = load_config(name, sets)
    assert dict(config.team.roles) == {"player_0": "team", "player_1": "past"}
    past = config.policies["past"]
    assert (past.kind, past.model, past.past.every, past.past.keep) == ("past", "team", 10, 3)
    assert config.names["algorithm"] == "rae"


def test_a_pool_of_the_past_that_no_policy_is_has_no_effect():
    name, sets = "tests/environments/foreign/test_match.py:Counting", ["environment.against=past"]
    own = ["policies.x.model=m", "team.player_0=x", "team.player_1=x"]
    with pytest.raises(
        ConfigError, match=r"environment.against = 'past' has no effect: no policy of the team is of kind"
    ):
        load_config(name, [*sets, *own])
    with pytest.raises(ConfigError, match=r"no policy of the team is of kind = 'past'"):
        load_config(name, [*sets, "policies.team.model=m", "policies.past.kind=frozen", "policies.past.model=m"])


def test_a_listed_move_that_is_not_taken_is_the_games_fault():
    class Refuses(Count):
        def turn(self):
            seat, news, _ = super().turn()
            return seat, news, ("3",)

    class Odd(Counting):
        def begun(self, seed: int) -> Count:
            return Refuses(False)

    with pytest.raises(EnvError, match="counting lists the move '3' and does not take it"):
        played(Odd(against="random"), "1", "1")
    assert Odd(brief=True, playouts=2)._ended(0, ["3", "3"], 0, Random(0)) == -1.0, "a playout may end so"


def test_rivals_are_not_judged_by_what_they_earn_together():
    name, sets = "tests/environments/foreign/test_match.py:Counting", ["policies.team.model=m"]
    for algorithm in ("drmas", "gigpo"):
        with pytest.raises(
            ConfigError, match=rf"algorithm '{algorithm}' adds up what roles earn, .*; set algorithm.own"
        ):
            load_config(name, [*sets, f"algorithm.name={algorithm}"])
        load_config(name, [*sets, f"algorithm.name={algorithm}", "algorithm.own=true"])
        load_config(name, [*sets, f"algorithm.name={algorithm}", "environment.against=random"])
    for algorithm in ("mas_grpo", "magrpo"):
        with pytest.raises(ConfigError, match=r"loss; set algorithm.name = 'rae'"):
            load_config(name, [*sets, f"algorithm.name={algorithm}"])
    for algorithm in ("rae", "reinforce_pp"):
        load_config(name, [*sets, f"algorithm.name={algorithm}"])


@pytest.mark.parametrize("settings", [{}, {"against": "random"}, {"brief": True}])
def test_the_contract_holds(settings):
    report = check(Counting(**settings), tasks=2, horizon="episode")
    assert report.ok, str(report)


def test_a_sealed_game_draws_its_own_whatever_others_draw_and_leaves_theirs_alone():
    import numpy

    def drawn(outside: int) -> list[float]:
        random.seed(outside)
        numpy.random.seed(outside)
        chance, found = Sealed(7), []
        for _ in range(3):
            before = random.getstate(), numpy.random.get_state()[1].tolist()  # pyright: ignore[reportArgumentType, reportCallIssue]
            with chance():
                random.seed(3) if not found else None
                found += [random.random(), float(numpy.random.random())]
            assert before == (random.getstate(), numpy.random.get_state()[1].tolist())  # pyright: ignore[reportArgumentType, reportCallIssue]
            random.random()
        return found

    assert drawn(1) == drawn(2)
    assert len(set(drawn(1))) == 6, "it goes on where it was"
    before, swapped = random.getstate(), drawn(1)
    random.setstate(before)
    with Sealed.alone():
        chance, found = Sealed(7), []
        for _ in range(3):
            with chance():
                random.seed(3) if not found else None
                found += [random.random(), float(numpy.random.random())]
    assert found == swapped, "one game alone draws the same"
    assert random.getstate() == before
    with pytest.raises(KeyError), Sealed(1)():
        raise KeyError
