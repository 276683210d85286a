"""Configs: what is refused, and that the one line says where and what to do."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.config.resolve import load_config, resolve
from coterie.config.settings import TrainConfig
from coterie.config.toml import flags, read
from coterie.errors import ConfigError
from coterie.learning.optimizer import OptimizerConfig
from coterie_worlds.tally import Tally

ROOT = Path(__file__).parents[2]


def refusal(source, overrides=()) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_an_unknown_key_names_the_nearest_the_file_and_the_line(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('[environment]\nname = "plan_path"\n\n[algorithm]\nname = "at_grpo"\nnum_generation = 4\n')
    assert refusal(file) == f"{file}:6: unknown key 'algorithm.num_generation'; did you mean 'num_generations'?"


def test_a_key_outside_every_table_is_told_where_keys_stand(tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('name = "plan_path"\n')
    assert refusal(file).startswith(f"{file}:1: 'name' stands in no table; write it below one of [environment], ")


def test_a_table_that_cannot_be_as_a_whole_blames_no_one_setting():
    said = refusal("sudoku", ["environment.size=9", "environment.givens=7"])
    assert said == "--set environment.givens=7: environment: givens = 7: a 9 x 9 puzzle has 22 to 80"


def test_what_a_table_lacks_as_a_whole_is_said_of_no_setting_that_is_not_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "say a"}\n')
    (tmp_path / "mine.py").write_text("def right(completions, **others): return [1.0]\n")
    said = refusal(f"prompts:{tmp_path}/rows.jsonl", [f"environment.rewards={tmp_path}/mine.py:right"])
    assert said.startswith("there are no validation tasks, and a run needs some: give more rows")
    frozen = ["policies.team.kind=frozen", "policies.team.model=starter"]
    assert refusal("plan_path", frozen).startswith("--set policies.team.kind=frozen: every policy is frozen or remote")


def test_a_value_is_one_value_and_what_is_too_deep_is_text():
    said = refusal("tally", ["train.steps=" + "[" * 20000])
    assert said.startswith("--set train.steps=[[[")
    assert len(said) < 1000
    assert "train.steps = '3\\nfoo=1'" in refusal("tally", ["train.steps=3\nfoo=1"])


def test_the_optimizer_of_a_policy_is_blamed_for_its_updates():
    own = [
        "team.lead=a", "team.counter=b", *(f"policies.{name}.model=starter-tally" for name in "ab"),
        "loss.name=policy_gradient",
    ]  # fmt: skip
    said = refusal("tally", [*own, "policies.b.optimizer.updates_per_step=4", "optimizer.lr=0.001"])
    assert said.startswith("--set policies.b.optimizer.updates_per_step=4: policies.b.optimizer.updates_per_step = 4 ")


def test_of_two_settings_that_a_message_names_none_is_blamed(tmp_path):
    (tmp_path / "wide.py").write_text(
        "from coterie import Environment\n"
        "class Wide(Environment):\n"
        "    roles = ('a',)\n"
        "    width: int = 1\n"
        "    height: int = 1\n"
        "    def task(self, split, index):\n"
        "        raise ValueError(f'width {self.width} and height {self.height} do not fit')\n"
        "    async def play(self, task, scene): ...\n"
    )
    sets = ["environment.width=9", "environment.height=9", "policies.team.model=starter"]
    said = refusal(f"{tmp_path}/wide.py", sets)
    assert said.startswith("environment.task('train', 0) raised ValueError: width 9 and height 9 do not fit")
    assert refusal(f"{tmp_path}/wide.py", sets[::2]).startswith("--set environment.width=9: environment.task")


def test_a_probe_that_is_never_reached_is_told():
    sets = ["train.steps=130", "train.eval_every=20"]
    (said,) = load_config("plan_path", [*sets, "train.mute_every=65"]).remarks
    assert said.startswith("train.mute_every = 65 counts validations, and this run makes 6 after its start")
    for every in (0, 6):
        assert not load_config("plan_path", [*sets, f"train.mute_every={every}"]).remarks
    assert not load_config("plan_path", ["train.steps=20"]).remarks


def test_a_starter_of_another_environment_is_told():
    (said,) = load_config("plan_path", ["policies.team.model=starter-tally"]).remarks
    assert said == (
        "policies.team.model = 'starter-tally' was taught another environment, in other words; the one that knows "
        "plan_path is 'starter'"
    )
    assert not load_config("plan_path", ["policies.team.model=starter"]).remarks


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["algorithm.num_generations=1"], "algorithm.num_generations = 1: input should be greater than or equal to 2"),
        (["train.steps=0"], "train.steps = 0"),
        (["train.steps=-3"], "train.steps = -3"),
        (["optimizer.lr=0"], "optimizer.lr = 0"),
        (["train.temperature=0"], "train.temperature = 0"),
        (["eval.top_p=0"], "eval.top_p = 0"),
        (["train.top_p=0.9"], "unknown key 'train.top_p'"),
        (["train.steps=many"], "train.steps = 'many'"),
        (["trian.steps=3"], "unknown table 'trian'; did you mean 'train'?"),
        (["environment.siez=3"], "unknown key 'environment.siez'; did you mean 'size'?"),
        (["algorithm.name=at_grop"], "unknown algorithm 'at_grop'; did you mean 'at_grpo'?"),
        (["algorithm.name=HGPO"], "unknown algorithm 'HGPO'; it is gigpo with algorithm.history here"),
        (["algorithm.name=m_grpo"], "unknown algorithm 'm_grpo'; it is main_sub_grpo here"),
        (["algorithm.name=mas_grpo", "algorithm.commit=greedy"], "it is a setting of at_grpo"),
        (["algorithm.name=grpo"], "set environment.solo = true"),
        (
            ["train.ranks=2", "policies.team.device=cpu"],
            "policies.team.device has no effect: train.ranks = 2 puts a part",
        ),
        (["loss.epsilon=0.1"], "has no effect: optimizer.updates_per_step = 1"),
        (["loss.name=policy_gradient", "loss.epsilon=0.1"], "it is a setting of clip, gspo"),
        (["optimizer.schedule=constant", "optimizer.min_lr_share=0.5"], "optimizer.min_lr_share has no effect"),
        (["environment.solo=true", "environment.view=full"], "environment.view has no effect"),
        (["team.proposer=x", "policies.x.model=starter"], "role 'planner' has no policy"),
        (["team.proposer=x", "team.planner=x"], "add [policies.x]"),
        (["team.propsoer=x"], "unknown role 'team.propsoer'; did you mean 'proposer'?"),
        (["policies.other.model=starter"], "policy 'other' plays no role"),
        (
            ["team.proposer=pilot", "team.planner=pilto", "policies.pilot.kind=full"],
            "role 'planner' is played by policy 'pilto', which is not defined; did you mean 'pilot'",
        ),
        (["policies.team.modle=starter"], "unknown key 'policies.team.modle'; did you mean 'model'?"),
        (["team.proposer=3", "team.planner=3"], "name a policy"),
        (["train=3"], "write it as table.key=value"),
        (["optimizer.clip_norm=inf"], "optimizer.clip_norm = inf"),
        (["team.proposer=../x", "team.planner=../x", "policies.../x.model=starter"], "write it as table.key=value"),
        (["environment.min_distance=90"], "lower min_distance"),
        (["train.steps.more=3"], "train.steps = {'more': 3}"),
        (["train.device=tpu"], "train.device = 'tpu'"),
        (["algorithm.name=3"], "algorithm.name is 3"),
    ],
)
def test_what_cannot_work_or_has_no_effect_is_refused(overrides, says):
    message = refusal("plan_path", overrides)
    assert says in message
    assert "--set" in message


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("plan_paht", "unknown environment 'plan_paht'; did you mean 'plan_path'?"),
        ("nowhere.toml", "does not exist"),
        ("nowhere.py:Env", "does not exist"),
        ("tests/toys.py:Nothing", "has no class Nothing"),
        ("tests/toys.py:Number", "has no class Number that is a coterie.Environment"),
    ],
)
def test_what_is_not_there_is_named(source, says):
    assert says in refusal(source)


def test_settings_in_one_string_are_not_read_letter_by_letter():
    with pytest.raises(
        ConfigError, match=r"overrides = 'train.steps=3' is one string; write a list: \['train.steps=3'\]"
    ):
        load_config("plan_path", "train.steps=3")


def test_what_an_environment_recommends_wrongly_is_told_of_it(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from tests.toys import Agree\nclass Mine(Agree):\n"
        "    def recommended(self): return {'train': {'step': 3}, 'optimizer': {'lr': -1.0}}\n"
    )
    source = f"{tmp_path}/mine.py:Mine"
    assert "Mine.recommended: unknown key 'train.step'; did you mean 'steps'?" in refusal(source, ["optimizer.lr=1e-3"])


def test_a_file_that_nests_beyond_all_bounds_is_one_line(tmp_path):
    (tmp_path / "a.toml").write_text("x = " + "[" * 5000)
    assert "a.toml: cannot be read as TOML: maximum recursion depth" in refusal(tmp_path / "a.toml")


def test_a_file_that_does_not_import_says_why(tmp_path):
    (tmp_path / "bad.py").write_text("import nothing_like_this\n")
    assert "does not import: ModuleNotFoundError" in refusal(f"{tmp_path}/bad.py:Env")


def test_toml_that_does_not_parse_names_the_file(tmp_path):
    (tmp_path / "a.toml").write_text("[train\n")
    assert "cannot be read as TOML" in refusal(tmp_path / "a.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    assert "cannot be read as TOML" in refusal(tmp_path / "b.toml")


def test_the_resolved_config_gives_the_same_run(tmp_path):
    first = load_config("plan_path", ["train.steps=7", "environment.size=4", "policies.team.template.quiet=true"])
    file = tmp_path / "config.toml"
    file.write_text(first.toml())
    second = load_config(file)
    assert second == first
    assert second.toml() == first.toml()


def test_every_value_that_is_no_default_says_who_set_it(tmp_path):
    file = tmp_path / "team.toml"
    file.write_text('[environment]\nname = "errand"\n\n[train]\nsteps = 7\n[policies."*"]\nmodel = "smollm2"\n')
    config = load_config(file, ["train.eval_every=3", *flags({"lr": 1e-3})])
    told = {line.partition(" =")[0]: line.partition("  # ")[2] for line in config.explained().splitlines()}
    assert told["steps"] == f"{file}:5"
    assert told["model"] == f"{file}:7"
    assert told["eval_every"] == "--set train.eval_every=3"
    assert told["lr"] == "--lr 0.001"
    assert told["horizon"] == "Errand.recommended"
    assert told["kind"].startswith("135 million parameters: ")
    assert told["rank"] == "adapters of this size learned where it was tried"
    assert told["clerk"] == "an adapter a role over one base, so that roles can differ"
    assert told["weight_decay"] == told["people"] == ""
    assert tomllib.loads(config.explained()) == tomllib.loads(config.toml())


def origins(file, text: str, *sets: str) -> dict[str, str]:
    file.write_text(text)
    return dict(load_config(file, sets).origins)


def test_a_value_of_every_policy_is_said_at_its_own_line(tmp_path):
    file = tmp_path / "c.toml"
    text = (
        '[environment]\nname = "tally"\n[policies.counter]\noptimizer.lr = 1e-4\n[policies.lead]\n'
        '[policies."*".optimizer]\nlr = 1e-3\n[policies."*".lora]\nrank = 4\n'
    )
    told = origins(file, text, "policies.*.optimizer.weight_decay=0.1", 'policies.*.kind="lora"')
    assert told["policies.counter.optimizer.lr"] == f"{file}:7"
    assert told["policies.lead.lora.rank"] == f"{file}:9"
    assert told["policies.lead.optimizer.weight_decay"] == "--set policies.*.optimizer.weight_decay=0.1"
    assert told["policies.lead.kind"] == '--set policies.*.kind="lora"'
    assert refusal_of(file, text.replace("rank = 4", "rankk = 4")).startswith(f"{file}:9: ")


def test_what_every_policy_has_leaves_the_rest_of_each(tmp_path):
    """One key of optimizer for all is not the whole table: what one policy has of its own would have no effect."""
    text = '[environment]\nname = "tally"\n[policies.counter]\noptimizer = {eps = 1e-6, lr = 1e-4}\n[policies.lead]\n'
    (tmp_path / "c.toml").write_text(text)
    policies = load_config(tmp_path / "c.toml", ["policies.*.optimizer.lr=1e-3"]).policies
    assert policies["counter"].optimizer == {"eps": 1e-6, "lr": 1e-3}
    assert policies["lead"].optimizer == {"lr": 1e-3}


def refusal_of(file, text: str) -> str:
    file.write_text(text)
    return refusal(file)


def test_an_override_of_a_table_takes_the_place_of_its_values(tmp_path):
    text = '[environment]\nname = "tally"\n[policies.counter.optimizer]\nlr = 1e-4\n'
    text += "[policies.lead]\noptimizer = {lr = 2e-4}\n"
    told = origins(tmp_path / "c.toml", text, "policies.counter.optimizer={lr=5e-3}")
    assert told["policies.counter.optimizer.lr"] == "--set policies.counter.optimizer={lr=5e-3}"
    assert told["policies.lead.optimizer.lr"] == f"{tmp_path / 'c.toml'}:6"


def test_an_argument_of_a_name_was_set_with_it_and_tables_of_a_program_are_given():
    agent = {"name": "gateway:tests/gateway/agents.py:leaves"}
    config = load_config({"environment": agent, "policies": {"team": {"model": "starter"}}})
    assert config.origins["environment.agent"] == config.origins["environment.name"] == "given"


def test_lines_are_those_of_an_editor(tmp_path):
    """Other programs end lines at U+2028, too, and a comment with it would shift all that follow."""
    told = origins(
        tmp_path / "c.toml", '# a\u2028[train]\u2028eval_every = 9\n[environment]\nname = "tally"\n[train]\nsteps = 3\n'
    )
    assert (told["train.steps"], told["train.eval_every"]) == (f"{tmp_path / 'c.toml'}:5", "Tally.recommended")


def test_a_runs_own_config_is_read_with_who_set_its_values(tmp_path):
    """A resume writes it anew, and would otherwise name the lines of the file that it replaces."""
    first = load_config("tally", ["train.steps=7", 'engine.name="transformers"'])
    file = tmp_path / "config.toml"
    file.write_text(first.explained())
    again = resolve(read(file, ["train.steps=9"], own=True))
    old, new = ([line.partition("  # ") for line in one.explained().splitlines()] for one in (first, again))
    old, new = ({value: who for value, _, who in lines} for lines in (old, new))
    assert new.pop("steps = 9") == "--set train.steps=9"
    assert old.pop("steps = 7") == "--set train.steps=7"
    assert old == new


def test_a_mark_of_a_comment_in_a_value_is_no_comment(tmp_path):
    config = load_config("plan_path", ["policies.team.system_text=a  # b"])
    assert tomllib.loads(config.explained()) == tomllib.loads(config.toml())
    (tmp_path / "config.toml").write_text(config.explained())
    again = resolve(read(tmp_path / "config.toml", own=True))
    assert again.policies["team"].system_text == "a  # b"
    assert again.origins["policies.team.system_text"] == "--set policies.team.system_text=a  # b"


def test_rollouts_ahead_correct_and_no_text_of_nought_does():
    assert load_config("plan_path", ["runtime.name=ray", "runtime.max_staleness=1"]).loss.correction == "token_truncate"
    for none in ("0", '"0"'):
        assert load_config("plan_path", ["runtime.name=ray", f"runtime.max_staleness={none}"]).loss.correction == "none"


def test_a_name_that_is_no_text_is_told_all_names():
    assert "name one of gateway, prompts, assistants, " in refusal({"environment": {"name": 3}})


def test_a_setting_of_another_world_is_named_with_it():
    assert "it is a setting of desks" in refusal("plan_path", ["environment.topics=3"])


def test_a_size_that_the_data_lower_says_so(tmp_path):
    rows = "".join(f"what is {at} plus 1?,{at + 1}\n" for at in range(40))
    (tmp_path / "qa.csv").write_text(f"question,answer\n{rows}")
    sets = ["policies.team.model=starter", "environment.rewards=number"]
    config = load_config(f"prompts:{tmp_path / 'qa.csv'}", sets)
    assert config.train.eval_tasks < TrainConfig().eval_tasks
    assert config.origins["train.eval_tasks"] == "there are no more tasks"


def test_a_bug_of_a_shipped_world_is_no_mistake_of_its_user(monkeypatch):
    def broken(self, **content):
        raise ZeroDivisionError

    monkeypatch.setattr(Tally, "__init__", broken)
    with pytest.raises(ZeroDivisionError):
        load_config("tally")


def test_who_set_a_value_cannot_set_another():
    config = load_config("plan_path", ["train.steps=5"])
    config = replace(config, origins={"train.steps": "x\nseed = 7\r\u2028[train]\x1b[2J"})
    assert tomllib.loads(config.explained())["train"]["seed"] == 0


def test_a_policy_is_named_so_that_it_can_be_a_folder():
    tables = {"environment": {"name": "plan_path"}, "team": dict.fromkeys(("proposer", "planner"), "../x")}
    assert "use letters, digits" in refusal({**tables, "policies": {"../x": {}}})


def test_an_environment_of_ones_own_is_named_by_its_file():
    config = load_config("tests/toys.py:Agree")
    assert config.names["environment"] == f"{ROOT / 'tests/toys.py'}:Agree"
    assert config.team.roles == {"a": "team", "b": "team"}


@pytest.mark.parametrize("file", sorted(ROOT.glob("configs/**/*.toml")), ids=lambda path: path.name)
def test_every_shipped_config_is_read_and_says_how_to_run_it(file):
    environment = tomllib.loads(file.read_text())["environment"]
    if environment["name"].startswith("reasoning_gym:"):
        pytest.importorskip("reasoning_gym", reason="needs the extra: pip install 'coterie[reasoning_gym]'")
    hub = "environment.data=" if "data" in environment else "train.seed=0"
    load_config(file, [hub])  # data from a hub cannot be had here
    first = file.read_text().splitlines()[0]
    assert re.match(r"# coterie train configs/\S+\.toml", first), first


@pytest.mark.parametrize("line", [" ".join(f"{at}." for at in range(60)), ".".join("a" * 60), "." * 60])
def test_a_text_of_many_dots_is_no_key_of_many_parts(line, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text(
        f'[environment]\nname = "tally"\n[policies.team]\nmodel = "starter-tally"\nsystem_text = """\n{line}"""\n'
    )
    assert load_config(file).policies["team"].system_text == line


@pytest.mark.parametrize(
    "text", ["[team]\n" + "\n".join(f"r{at} = 'p'" for at in range(5_000)), "x = " + "[" * 20 + "]" * 20]
)
def test_a_config_has_bounds(text, tmp_path):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ConfigError, match="it has more than 4,000 values, or more than 16 tables within each other"):
        load_config(tmp_path / "a.toml")


def test_the_reference_of_settings_is_up_to_date():
    from coterie.config.reference import reference

    assert (ROOT / "docs/config.md").read_text() == reference(), "run `make docs`"


@pytest.mark.parametrize("sets", [["environment.solo=true", "algorithm.name=grpo"], ["environment.solo=true"]])
def test_a_resolved_config_of_one_role_is_read_again(sets, tmp_path):
    """What has no effect in it, the mute probe, is left out."""
    config = load_config("plan_path", sets)
    (tmp_path / "config.toml").write_text(config.toml())
    again = load_config(tmp_path / "config.toml")
    assert again.tables() == config.tables()
    assert "mute_every" not in config.toml()


def test_a_setting_that_a_file_could_not_give_back_is_refused():
    """None is not written: read back, it would be the default, and a resumed run another one."""
    tables = {"environment": {"name": "plan_path"}, "algorithm": {"name": "joyagents_paper", "top_k": None}}
    with pytest.raises(ConfigError, match="top_k = none cannot be written"):
        load_config(tables)
    tables["algorithm"] = {"name": "joyagents", "top_k": None, "selection": "raw_var"}
    config = load_config(tables)
    assert load_config(tomllib.loads(config.toml())).algorithm == config.algorithm


@pytest.mark.parametrize("name", ["plan_path", "code", "code_pair", "assistants"])
def test_an_environment_by_its_name_is_its_config_written_out(name):
    """`coterie train plan_path` gives the headline number: one rule, read in two places."""
    assert load_config(name).tables() == load_config(f"configs/{name}.toml").tables()


@pytest.mark.parametrize("name", ["code_pair", "assistants"])
def test_the_solo_config_is_what_a_solo_environment_recommends(name):
    alone = load_config(name, ["environment.solo=true"])
    assert alone.tables() == load_config(f"configs/{name}_solo.toml").tables()


def test_plan_path_alone_is_trained_with_grpo():
    assert load_config("plan_path", ["environment.solo=true"]).names["algorithm"] == "grpo"


def test_what_a_config_says_comes_before_what_is_recommended():
    base = load_config("plan_path")
    assert (base.names["algorithm"], base.algorithm.commit, dict(base.team.roles)) == (  # pyright: ignore[reportAttributeAccessIssue]
        "at_grpo", "random", {"proposer": "scout", "planner": "pilot"})  # fmt: skip
    assert load_config("plan_path", ["train.steps=7"]).train.tasks_per_step == base.train.tasks_per_step
    assert load_config("plan_path", ["train.steps=7"]).train.steps == 7
    other = load_config("plan_path", ["algorithm.name=mas_grpo"])
    assert "commit" not in type(other.algorithm).model_fields
    assert other.optimizer.lr == 1e-3
    shared = load_config("plan_path", ["policies.team.template.quiet=true"])
    assert set(shared.team.roles.values()) == {"team"}
    theirs = load_config("plan_path", ["policies.scout.model=some/model-1B"])
    assert (theirs.policies["scout"].model, theirs.policies["pilot"].model) == ("some/model-1B", "starter")
    assert theirs.optimizer.lr == OptimizerConfig().lr, "how the starter learns is no advice for another model"
    assert theirs.train.steps not in (TrainConfig().steps, base.train.steps)


@pytest.mark.parametrize("tables", [{"train": 5}, {"environment": None}, {"environment": "relay"}, {1: {}}])
def test_what_is_no_table_is_refused(tables):
    assert "a config has named tables" in refusal(tables)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("algorithm.name=hierarchical_grpo", r"algorithm.attempts has no default; set it. Roles whose replies"),
        ("environment.shares=4", r"shares = 4: it is a list; write it as \[4, …\]"),
        ("environment.shares=[]", r"the list is empty; it has at least 1"),
    ],
)
def test_a_list_that_is_missing_or_none_or_empty(override, told):
    with pytest.raises(ConfigError, match=told):
        load_config("relay", [override])


def test_tables_given_as_a_mapping_stay_as_they_are():
    tables = {"environment": {"name": "plan_path"}, "policies": {"team": {}}}
    assert load_config(tables, ["policies.team.system=fold"]).policies["team"].system == "fold"
    assert tables == {"environment": {"name": "plan_path"}, "policies": {"team": {}}}


def test_a_model_that_is_named_and_no_starter_is_given_instructions():
    named = "policies.team.model=some/model"
    assert not load_config("maths", [named]).environment.model_dump()["brief"]
    assert load_config("maths", [named, "environment.brief=true"]).environment.model_dump()["brief"]
    assert load_config("maths").environment.model_dump()["brief"]


def test_a_folder_may_hold_a_starter_and_is_asked_in_brief(tmp_path):
    assert load_config("maths", [f"policies.team.model={tmp_path}"]).environment.model_dump()["brief"]
    assert (
        load_config("maths", [f"policies.team.model={tmp_path}", "environment.brief=false"]).environment.brief is False  # pyright: ignore
    )


def test_a_team_with_one_starter_is_asked_in_brief():
    one = ["policies.scout.model=some/model-1B"]
    assert load_config("plan_path", one).environment.model_dump()["brief"]
    config = load_config("plan_path", [*one, "policies.pilot.model=some/model"])
    assert not config.environment.model_dump()["brief"]
    assert config.team.roles == {"proposer": "scout", "planner": "pilot"}
