"""One agent, one turn: the same completions give TRL's GRPOTrainer and our learner the same numbers.

TRL samples, scores and trains two groups for real; what it trained on is recorded and given to our
credit, rows and learner. Needs the extra `oracles`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from coterie.algorithms.credit import standardize
from coterie.kernel.episode import Sample
from coterie.kernel.group import Group, Key, Member
from coterie.kernel.team import Team, route
from coterie.learning.learner import LocalLearner
from coterie.learning.loss import Clip
from coterie.models.load import load_model, prepare, save_model
from tests.toys import policies, tiny

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # what TRL warns of is not ours
GROUPS, SIZE, LONGEST, KL, EPSILON, EPSILON_HIGH = 3, 4, 8, 0.04, 0.2, 0.28
LOSS_TYPES = {"grpo": "sequences", "bnpo": "tokens", "dapo": "tokens", "dr_grpo": "tokens"}
"""TRL's name: our denominator. dr_grpo divides by a constant: B times the longest reply."""


PROMPTS = ["pick", "match 0", "say"]
"""Whatever is said to the last one is worth the same: its group is flat."""


def worth(text: str, prompt: str = "") -> float:
    return 1.0 if prompt == PROMPTS[-1] else float(sum(text.encode()) % 7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    model = tiny(0, scale=3.0)
    model.net.resize_token_embeddings(model.vocabulary)  # TRL does not know of padded ids
    folder = tmp_path_factory.mktemp("trl") / "model"
    save_model(prepare(model.net, model.tokenizer), folder)
    return folder


@pytest.fixture(scope="module")
def trainer(folder, tmp_path_factory) -> Any:
    """TRL's trainer after one rollout, whose policy has moved away from the reference and the sampler."""
    pytest.importorskip("trl", reason="needs the extra oracles: pip install 'coterie[oracles]'")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    settings = GRPOConfig(
        output_dir=str(tmp_path_factory.mktemp("out")), per_device_train_batch_size=GROUPS * SIZE, max_steps=1,
        num_generations=SIZE, max_completion_length=LONGEST, beta=KL, use_bias_correction_kl=True, epsilon=EPSILON,
        epsilon_high=EPSILON_HIGH, report_to=[], use_cpu=True, bf16=False, save_strategy="no", seed=0,
        learning_rate=0.0, shuffle_dataset=False, activation_checkpointing=False,
    )  # fmt: skip
    found = GRPOTrainer(
        model=str(folder), args=settings, train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS]),
        reward_funcs=lambda prompts, completions, **_: list(map(worth, completions, prompts)),
        processing_class=tiny(0).tokenizer,
    )  # fmt: skip
    found.recorded = {}
    compute = found._compute_loss

    def record(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        found.recorded.update(inputs)
        return compute(model, inputs)

    found._compute_loss = record
    found.train()
    found._compute_loss = compute
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in found.model.parameters():
            weight.add_(0.02 * torch.randn_like(weight))
    shape = found.recorded["completion_ids"].shape
    found.recorded["old_per_token_logps"] = found.recorded["ref_per_token_logps"] + 0.2 * torch.randn(shape)
    return found


def groups(trainer: Any, logprobs: str = "old_per_token_logps") -> list[Group]:
    """What TRL recorded, as groups; it shuffles rows after scoring, so they are found by their prompt."""
    inputs = trainer.recorded
    rows: dict[tuple[int, ...], list[int]] = {}
    for row in range(GROUPS * SIZE):
        prompt = inputs["prompt_ids"][row][inputs["prompt_mask"][row].bool()]
        rows.setdefault(tuple(prompt.tolist()), []).append(row)
    assert sorted(map(len, rows.values())) == [SIZE] * GROUPS
    found: list[Group] = []
    for prompt, mine in rows.items():
        asked = trainer.processing_class.decode(prompt)
        members: list[Member] = []
        for row in mine:
            kept = inputs["completion_mask"][row].bool()
            ids = tuple(inputs["completion_ids"][row][kept].tolist())
            text = trainer.processing_class.decode(ids, skip_special_tokens=True)
            sampled = tuple(inputs[logprobs][row][kept].tolist())
            members.append(
                Member((Sample("a", "p", 0, prompt, ids, sampled, "length", text, seed=row),), (worth(text, asked),))
            )
        found.append(Group(Key(f"task {mine[0]}", 0, "0@0", "a"), "prompt", tuple(members)))
    return found


def credited(found: list[Group]) -> list[list[float]]:
    """Our advantages, with TRL's number beside the deviation (1e-4, ours is 1e-6)."""
    return [standardize(group.values, eps=1e-4) for group in found]


def test_advantages_are_the_same(trainer):
    found = groups(trainer)
    for group, ours in zip(found, credited(found), strict=True):
        theirs = [float(trainer.recorded["advantages"][member.samples[0].seed]) for member in group.members]
        assert ours == pytest.approx(theirs, rel=0, abs=1e-6)
        assert max(ours) > 0.5 or not group.live
    assert [group.live for group in found].count(False) == 1


@pytest.mark.parametrize("kl", [0.0, KL])
def test_a_flat_group_counts_in_the_mean_as_it_does_in_theirs(trainer, folder, kl):
    """Without KL it is not computed, and with it its KL is trained: the gradient is theirs in both."""
    beta, trainer.beta = trainer.beta, kl
    try:
        for kind in ("grpo", "dapo"):
            compare(trainer, folder, kind, kl)
    finally:
        trainer.beta = beta


@pytest.mark.parametrize("kind", LOSS_TYPES)
def test_loss_gradient_clip_share_and_kl_are_the_same(trainer, folder, kind):
    ours, theirs = compare(trainer, folder, kind, KL)
    assert ours["entropy"] == pytest.approx(theirs["entropy"], rel=1e-4)
    assert ours["clip_share"] == pytest.approx(theirs["clip_ratio/region_mean"], rel=1e-5)
    assert 0.05 < ours["clip_share"] < 0.9


def compare(trainer: Any, folder: Path, kind: str, kl: float) -> tuple[dict[str, float], dict[str, float]]:
    """Both losses and gradients are the same; what both sides log of them."""
    model = load_model(str(folder))
    loss = Clip(epsilon=EPSILON, epsilon_high=EPSILON_HIGH, kl=kl, denominator=LOSS_TYPES[kind])  # pyright: ignore[reportArgumentType]
    learner = LocalLearner(policies({"p": model}, clip_norm=1e9), loss, 1)
    model.net.load_state_dict(trainer.model.state_dict())  # the reference stays where the run began
    experience = route(Team({"a": "p"}), groups(trainer), credited(groups(trainer)))
    kept: dict[str, torch.Tensor] = {}
    learner.trainees["p"].optimizer.step = lambda: kept.update(  # pyright: ignore[reportAttributeAccessIssue]
        {name: weight.grad.clone() for name, weight in model.net.named_parameters() if weight.grad is not None}
    )
    ours = learner.update(experience, 0)["p"].metrics

    trainer.loss_type = kind
    trainer._metrics["train"].clear()
    trainer.model.train()
    trainer.model.zero_grad()
    theirs = trainer._compute_loss(trainer.model, trainer.recorded)
    theirs.backward()
    logged = {name: values[-1] for name, values in trainer._metrics["train"].items()}

    scale = 1.0
    if kind == "dr_grpo":
        scale = ours["trained_tokens"] / (GROUPS * SIZE * LONGEST)
    assert ours["loss"] * scale == pytest.approx(float(theirs.detach()), rel=1e-4, abs=1e-6)
    for name, weight in trainer.model.named_parameters():
        assert torch.allclose(scale * kept[name], weight.grad, rtol=1e-3, atol=1e-6), name
    return dict(ours), logged


def test_kl_is_the_same_where_the_ratio_is_left_out_of_what_is_logged(trainer, folder):
    """TRL logs k3 times the ratio, the term of its loss; we log k3 itself. At ratio 1 they are one number."""
    inputs = trainer.recorded
    with torch.no_grad():
        now, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
            torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
            inputs["completion_ids"].shape[1],
        )
    model = load_model(str(folder))
    learner = LocalLearner(
        policies({"p": model}), Clip(epsilon=EPSILON, epsilon_high=EPSILON_HIGH, kl=KL, denominator="tokens"), 1
    )
    model.net.load_state_dict(trainer.model.state_dict())
    inputs["now"] = now
    found = groups(trainer, "now")
    ours = learner.update(route(Team({"a": "p"}), found, credited(found)), 0)["p"].metrics
    trainer._metrics["train"].clear()
    trainer._compute_loss(trainer.model, {**inputs, "old_per_token_logps": now})
    assert ours["kl_k3"] == pytest.approx(trainer._metrics["train"]["kl"][-1], rel=1e-4)
    assert ours["kl_k3"] > 1e-4
