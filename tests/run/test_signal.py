"""The learning signal of a team before training: which groups are alive, by which rewards, and what is advised."""

from dataclasses import replace

import pytest

import coterie
from coterie.config.resolve import load_config
from coterie.engines.scripted import ScriptedEngine
from coterie.errors import ConfigError, RolloutError, Unavailable
from coterie.models.load import save_model
from coterie.report.signal import signal_text
from coterie.run.evaluate import evaluate_team, readable_share
from coterie.run.rollout import play_tasks
from coterie.run.signal import Signal, Speaker, _counted, measure_signal
from tests.toys import TEAM, Acting, Agree, Toy, tiny

CONFIG = load_config({"environment": {"name": "tests/toys.py:Agree"}, "algorithm": {"num_generations": 4}})


def signal(script, world=None, config=CONFIG, **how) -> Signal:
    config = config if world is None else replace(config, environment=world)
    return measure_signal(config, ScriptedEngine(script), **{"tasks": 4, **how})


def test_groups_are_those_of_a_training_step_and_a_live_one_has_different_returns():
    """Every role of four tasks has a group. b always says an even byte: nothing of its differs. a's replies do."""
    found = signal(lambda role, prompt, rng: rng.choice("ab") if role == "a" else "b", tasks=8)
    assert (found.tasks, found.groups, found.roles["a"].groups, found.roles["b"].groups) == (8, 16, 8, 8)
    assert found.roles["b"].live == 0
    assert 4 <= found.roles["a"].live == found.live <= 8  # of four fair coins, one in eight falls alike
    assert found.differs == {"local": found.live, "team/team": found.live}  # the team earns what a decides
    assert found.a_step == pytest.approx(found.live / 8 * CONFIG.train.tasks_per_step)
    assert found.alike == 16 - found.live
    assert found.roles["a"].spread == 2.0  # 1 of its own and 1 of the team


def test_a_team_whose_reward_differs_has_a_signal():
    found = signal(lambda role, prompt, rng: rng.choice("ab"))
    assert found.kind == "signal"
    assert 0 < found.team < found.live
    assert f"{round(100 * found.live / 8)} % of 8 groups have different returns" in found.verdict
    assert f"the team's reward differs in {found.team}" in found.verdict


def test_tasks_that_were_lost_do_not_make_a_step_poorer():
    """Of eight tasks two were lost: a step has as many live groups a task as the other six."""
    rollout = play_tasks(CONFIG, ScriptedEngine(lambda role, prompt, rng: rng.choice("ab")), 0, range(6), None)
    whole, lost = (_counted(CONFIG, replace(rollout, lost=8 - done), done, 8) for done in (6, 8))
    assert (whole.tasks, lost.tasks) == (6, 8)
    assert lost.a_step == whole.a_step == pytest.approx(whole.live / 6 * CONFIG.train.tasks_per_step)


def test_a_role_without_a_live_group_beside_one_with_some_is_named():
    found = signal(lambda role, prompt, rng: rng.choice("ab") if role == "a" else "b")
    assert found.kind == "signal"
    assert "not for b (0 of 4): so far nothing that a role says there changes what it earns" in found.verdict
    assert "b says, for example, 'b'; if that should earn something, mend the reward" in found.verdict
    assert "not for" not in signal(lambda role, prompt, rng: rng.choice("ab")).verdict


def test_cut_replies_are_named_beside_a_signal_too():
    found = signal(lambda role, prompt, rng: rng.choice(("a long", "b long")), Lengthy())
    assert found.kind == "signal"
    told = "training may mend it; else raise max_tokens where play asks, or engine.max_tokens"
    assert f"many replies are cut at their limit (a 100 %): {told}" in found.verdict
    capped = replace(CONFIG, environment=Capped())
    found = signal(lambda role, prompt, rng: rng.choice(("a long", "b long")), capped.environment, capped)
    assert "else raise environment.first_tokens or environment.then_tokens, or ask" in found.verdict


@pytest.mark.parametrize("commit", ["greedy", "random"])
def test_episodes_that_go_on_with_the_best_reply_are_said_to_be_more_than_the_team_solves(commit):
    config = replace(CONFIG, algorithm=CONFIG.algorithm.model_copy(update={"commit": commit}))
    text = signal_text(signal(lambda role, prompt, rng: rng.choice("ab"), config=config))
    assert ("which go on with the best of each group's replies: the team alone solves fewer" in text) == (
        commit == "greedy"
    )


def test_replies_that_are_all_the_same_have_no_signal_and_the_verdict_says_what_to_do():
    """Wilson: of 0 of 8 groups at most 3.8415 / (8 + 3.8415) = 32 % are alive."""
    found = signal(lambda role, prompt, rng: "a")
    assert (found.kind, found.live, found.alike) == ("none", 0, 8)
    assert found.verdict.startswith("RL has no signal: 0 of 8 groups have different returns (at most 32 % of them")
    assert "in 8 groups all replies are the same: raise train.temperature" in found.verdict


def test_a_team_that_solves_everything_has_nothing_left_to_learn():
    found = signal(lambda role, prompt, rng: "b")
    assert (found.kind, found.success) == ("solved", 1.0)
    assert found.verdict.startswith("RL has nothing to teach: 100 % of 4 episodes are solved")


class Lengthy(Toy):
    """Pays the team if a's reply, of more tokens than it may have, begins with b."""

    async def play(self, task, scene) -> None:
        reply = await scene.ask("a", "speak", max_tokens=4)
        scene.team_reward(float(reply.text.startswith("b")))
        scene.succeed() if reply.text.startswith("b") else scene.fail("a")


class Capped(Lengthy):
    """Has settings for the length of replies."""

    first_tokens: int = 4
    then_tokens: int = 4


class Shaped(Toy):
    """Pays an even letter of each role; nobody ever solves it."""

    roles = ("a", "b")

    async def play(self, task, scene) -> None:
        for role in self.roles:
            reply = await scene.ask(role, "pick", max_tokens=4)
            scene.reward(role, float(reply.text[:1] == "b"), "even")
        scene.team_reward(0.0)
        scene.fail("never")


def test_groups_that_differ_by_local_rewards_alone_are_no_signal_for_success():
    found = signal(lambda role, prompt, rng: rng.choice("ab"), Shaped())
    assert (found.kind, found.team, found.differs) == ("shaped", 0, {"even": found.live})
    assert "RL has a signal for local rewards alone" in found.verdict
    assert "only by even; the team's reward is the same in every group, and no episode was solved" in found.verdict


class Short(Toy):
    """Pays the team for a reply that ended by itself; nobody ever solves it."""

    async def play(self, task, scene) -> None:
        reply = await scene.ask("a", "speak", max_tokens=4)
        scene.team_reward(-float(reply.finish == "length"))


def test_groups_that_differ_only_by_cut_replies_are_counted_and_named():
    found = signal(lambda role, prompt, rng: rng.choice(("a", "b", "long")), Short())
    assert (found.kind, found.cut) == ("shaped", found.live)
    assert found.live
    assert "only because some replies were cut at their limit" in found.verdict
    many = replace(CONFIG, algorithm=CONFIG.algorithm.model_copy(update={"num_generations": 24}))
    other = signal(lambda role, prompt, rng: rng.choice(("a", "b", "long")), Shaped(), many)
    assert other.live == other.groups
    assert other.cut == 0  # replies that ended differ too


def test_a_role_that_does_not_end_its_replies_is_named():
    found = signal(lambda role, prompt, rng: "long", Short())
    assert found.kind == "none"
    assert found.roles["a"].cut == 1.0
    assert "many replies are cut at their limit (a 100 %): raise max_tokens where play asks" in found.verdict


def test_groups_of_one_are_seen_beside_those_of_other_tasks():
    """Each role's episodes are judged by a running baseline. Returns that never differ are no signal."""
    rae = load_config({"environment": {"name": "tests/toys.py:Agree"}, "algorithm": {"name": "rae"}})
    dull = signal(lambda role, prompt, rng: "a", config=rae)
    assert (dull.kind, dull.groups, dull.live) == ("none", 8, 0)  # b is paid every time
    found = signal(lambda role, prompt, rng: rng.choice("ab"), config=rae, tasks=16)
    assert found.kind == "signal"
    assert found.team == found.live > 16
    assert found.roles["a"].spread > 0


def test_few_live_groups_are_a_weak_signal():
    """The replies to one task in sixteen differ: at most 2 of 32 groups are alive, less than a tenth."""

    def script(role, prompt, rng):
        return rng.choice("ab") if prompt == "pick 45" else "a"

    often = replace(CONFIG, train=CONFIG.train.model_copy(update={"tasks_per_step": 64}))
    found = signal(script, Rare(), often, tasks=16)
    assert (found.live, found.groups, found.a_step) == (1, 32, 4.0)
    assert found.kind == "weak"
    assert found.verdict.startswith("RL has a weak signal: 1 of 32 groups (3 %) have different returns")


class Rare(Toy):
    """Shows a its task's number; the team is paid for an even letter."""

    async def play(self, task, scene) -> None:
        first = await scene.ask("a", f"pick {task.number}", max_tokens=2)
        await scene.ask("b", "pick", max_tokens=2)
        scene.team_reward(float(first.text == "b"))


def test_a_step_with_less_than_two_live_groups_is_a_weak_signal():
    few = replace(CONFIG, train=CONFIG.train.model_copy(update={"tasks_per_step": 1}))
    found = signal(lambda role, prompt, rng: rng.choice("ab") if role == "a" else "b", config=few, tasks=8)
    assert found.a_step < 2
    assert found.kind == "weak"
    assert f"about {found.a_step:.1f} a training step" in found.verdict


def test_a_team_without_a_trained_policy_has_nobody_to_teach():
    frozen = replace(CONFIG, team=replace(CONFIG.team, frozen=frozenset({"team"})))
    assert signal(lambda role, prompt, rng: "a", config=frozen).kind == "frozen"


class Noted(Toy):
    """Notes of each reply whether it is a digit."""

    async def play(self, task, scene) -> None:
        for role in self.roles:
            reply = await scene.ask(role, "a digit")
            scene.metric(f"readable/{role}", float(reply.text.isdigit()))


def test_the_share_of_readable_replies_is_over_replies_and_absent_where_nobody_notes_it():
    words = {"a": "1", "b": "x"}
    assert signal(lambda role, prompt, rng: words[role], Noted()).readable == 0.5
    assert signal(lambda role, prompt, rng: "a").readable is None
    found = evaluate_team(Noted(), TEAM, ScriptedEngine.table({"a": "x", "b": "x"}), tasks=3)
    assert readable_share([*found.logs, None]) == 0.0
    assert readable_share(evaluate_team(Agree(), TEAM, ScriptedEngine.table(words), tasks=3).logs) is None
    verdict = signal(lambda role, prompt, rng: "x", Noted()).verdict
    assert "only 0 % of replies can be read: say the form of a reply in one line, with an example" in verdict


class Surprised(ScriptedEngine):
    """Every token has log-probability -1.7."""

    def _sample(self, request, seed):
        sample = super()._sample(request, seed)
        return replace(sample, logprobs=(-1.7,) * len(sample.completion_ids))


def test_high_entropy_advises_a_lower_temperature_for_real_vocabularies_alone():
    engine = Surprised(lambda role, prompt, rng: rng.choice("ab"))
    real = measure_signal(CONFIG, engine, tasks=4, speakers={"team": Speaker(49152)})
    assert real.entropy == pytest.approx({"team": 1.7})
    assert real.advice == (
        "replies are nearly random at temperature 1 (1.7 nats a token): set train.temperature = 0.7",
    )
    assert measure_signal(CONFIG, engine, tasks=4, speakers={"team": Speaker(320)}).advice == ()
    cool = replace(CONFIG, train=CONFIG.train.model_copy(update={"temperature": 0.7}))
    assert measure_signal(cool, engine, tasks=4, speakers={"team": Speaker(49152)}).advice == ()


def test_the_temperature_that_a_model_recommends_is_advised_where_another_is_set():
    def advice(recommended, script=lambda role, prompt, rng: rng.choice("ab")):
        engine = ScriptedEngine(script)
        return measure_signal(CONFIG, engine, tasks=4, speakers={"team": Speaker(49152, recommended)}).advice

    assert advice(0.6) == (
        "the model's generation_config recommends temperature 0.6, and it is sampled at 1: set train.temperature = 0.6",
    )
    assert advice(None) == advice(1.0) == ()


def test_no_further_tasks_begin_when_the_time_is_over_and_some_are_always_played():
    heard = []
    found = signal(
        lambda role, prompt, rng: rng.choice("ab"), tasks=12, seconds=0.0, progress=lambda *done: heard.append(done)
    )
    assert (found.tasks, found.wanted, heard) == (4, 12, [(4, 12)])
    with pytest.raises(ConfigError, match="at least 1"):
        signal(lambda role, prompt, rng: "a", tasks=0)


def test_nothing_in_the_world_is_changed():
    """Every episode ends before its call with an external effect."""
    with pytest.raises(RolloutError, match="none of 4 train tasks could be played"):
        signal(lambda role, prompt, rng: "1", Acting(), replace(CONFIG, team=TEAM))


class Down(ScriptedEngine):
    async def generate(self, requests):
        raise Unavailable("engine", "down")


def test_a_team_that_cannot_play_is_an_error():
    with pytest.raises(RolloutError, match=r"none of 4 train tasks could be played.*down"):
        measure_signal(CONFIG, Down(lambda role, prompt, rng: "a"), tasks=4)


def test_a_config_is_loaded_as_a_team_that_plays_before_training(tmp_path):
    save_model(tiny(scale=2.0), tmp_path / "model")
    config = load_config(
        "tests/toys.py:Agree", [f"policies.team.model={tmp_path / 'model'}", "train.temperature=0.5", "eval.tasks=3"]
    )
    team = coterie.load(config)
    assert repr(team).endswith("tests/toys.py:Agree at step 0>")
    assert team.signal(tasks=4).groups == 8
    assert team.play("validation", 1).outcome is not None
    sampled = team.evaluate("validation", sampled=2)
    assert (sampled.tasks, len(sampled.solved)) == (3, 6)
    assert coterie.evaluate(config, "validation") == team.evaluate("validation")
    hot = replace(config, train=config.train.model_copy(update={"temperature": 50.0}))
    assert coterie.evaluate(hot, "validation", sampled=2).logs != sampled.logs  # sampled as in training
    assert not team.changed
    with pytest.raises(ConfigError, match="this team is untrained"):
        team.compare([coterie.Ablation.parse("replace", "a=base")], "validation")
    with pytest.raises(ConfigError, match="a config has no checkpoints"):
        coterie.load(config, 3)
    team.close()


@pytest.mark.parametrize(
    ("world", "kind", "algorithm"),
    [("Agree", "signal", "at_grpo"), ("Flat", "none", "at_grpo"), ("Agree", "signal", "rae")],
)
def test_the_signal_of_a_config_is_what_its_first_training_step_finds(tmp_path, world, kind, algorithm):
    save_model(tiny(scale=2.0), tmp_path / "model")
    sets = ("policies.team.model=" + str(tmp_path / "model"), "train.steps=1", "train.tasks_per_step=4",
            "train.eval_tasks=2", "eval.tasks=2", f"algorithm.name={algorithm}", "environment.max_turns=1")  # fmt: skip
    config = load_config(f"tests/toys.py:{world}", sets)
    team = coterie.load(config)
    found = team.signal(tasks=4)
    team.close()
    assert found.kind == kind
    line = coterie.train(config, tmp_path / "run").metrics()[-1]
    assert (found.groups, found.live) == (line["groups/total"], line["groups/live"])
    assert {role: mine.live for role, mine in found.roles.items()} == {
        role: line[f"role/{role}/live_groups"] for role in ("a", "b")
    }
    assert {role: mine.cut for role, mine in found.roles.items()} == {
        role: line[f"role/{role}/truncated_share"] for role in ("a", "b")
    }
