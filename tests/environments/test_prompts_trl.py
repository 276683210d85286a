"""A reward function is given what TRL's own trainer gives it. Needs the extra `oracles`."""

import json

import pytest

from coterie.kernel.environment import SPLITS
from coterie.kernel.episode import Returned
from tests.environments.test_prompts import ROWS, of, played, world
from tests.toys import tiny


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what TRL warns of is not ours
def test_it_gives_a_function_what_trl_gives_it(tmp_path):
    pytest.importorskip("trl", reason="needs the extra oracles: pip install 'coterie[oracles]'")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from tests.environments import trl_rewards

    for rows in (ROWS[:1], [{"prompt": [{"role": "user", "content": "Hi"}], "n": 1}]):
        model = tiny(scale=2.0)
        settings = GRPOConfig(
            output_dir=str(tmp_path / "out"), per_device_train_batch_size=2, max_steps=1, num_generations=2,
            max_completion_length=4, report_to=[], use_cpu=True, bf16=False, save_strategy="no",
        )  # fmt: skip
        GRPOTrainer(
            model=model.net, args=settings, train_dataset=Dataset.from_list(rows), reward_funcs=trl_rewards.given,
            processing_class=model.tokenizer,
        ).train()  # fmt: skip
        environment = world(tmp_path / str(len(trl_rewards.GIVEN)), "given", rows=rows)
        (split,) = [split for split in SPLITS if environment.count(split)]
        mine = json.loads(of(played(environment, "words", split=split), Returned)[0].value["extra"]["given"])
        his = trl_rewards.GIVEN[-1]
        assert mine.keys() == his.keys() - {"environments"}
        for key in mine.keys() - {"trainer_state", "log_extra", "log_metric"}:
            assert kind(mine[key][0]) == kind(his[key][0]), key
        assert mine["prompts"][0] in his["prompts"]


def kind(value):
    """A value's type, and that of what it holds."""
    inside = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    return type(value), [kind(part) for part in inside][:1]
