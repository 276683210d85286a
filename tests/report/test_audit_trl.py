"""`coterie audit` reads what TRL itself has saved. Needs the extra `oracles`."""

import pytest

from coterie.algorithms.credit import standardize
from coterie.models.load import save_model
from coterie.report.audit import audit
from coterie.report.rollouts import ColumnChoice, read
from tests.toys import tiny


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what TRL warns of is not ours
def test_a_file_that_trl_wrote_of_two_agents_in_each_group(tmp_path):
    pytest.importorskip("trl", reason="needs the extra oracles: pip install 'coterie[oracles]'")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    model = tiny(scale=2.0)
    save_model(model, tmp_path / "model")

    def reward(prompts, completions, log_extra, **_):
        log_extra("agent", ["planner" if at % 2 else "checker" for at in range(len(prompts))])
        return [float(len(words) + at) for at, words in enumerate(completions)]

    settings = GRPOConfig(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=8, max_steps=1, num_generations=4,
        log_completions=True, max_completion_length=4, report_to=[], use_cpu=True, bf16=False, save_strategy="no",
        logging_steps=1,
    )  # fmt: skip
    data = Dataset.from_list([{"prompt": prompt} for prompt in ("one", "two")])
    GRPOTrainer(
        model=str(tmp_path / "model"),
        args=settings,
        train_dataset=data,
        reward_funcs=reward,
        processing_class=model.tokenizer,
    ).train()
    (file,) = (tmp_path / "out/completions").glob("*.parquet")
    found = audit(read(file))
    assert found.rollouts.grouped.startswith("groups: each 4 in a row, found by their advantages, which sum to zero")
    assert (found.groups, [mixed.what for mixed in found.mixed]) == (2, [("roles",)] * 2)
    assert not found.computed
    for mixed in found.mixed:  # TRL's own advantages are those of the mixed group: + 1e-4 where ours has 1e-6
        was = standardize([judged.row.reward for judged in mixed.replies])
        assert [judged.was for judged in mixed.replies] == pytest.approx(was, rel=1e-3)
    assert audit(read(file, ColumnChoice(group="agent"))).ok is False  # each agent answered both prompts
