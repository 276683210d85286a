"""The update: its gradient, its denominators, and whose weights it moves."""

import contextlib
import copy
import dataclasses
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.errors import EngineError, UpdateError
from coterie.kernel.episode import Sample
from coterie.kernel.team import Graded
from coterie.learning import forward
from coterie.learning import learner as learner_module
from coterie.learning.batch import Pack, Row, merged, microbatches, pack, rows_of
from coterie.learning.forward import lay_out, merges, score, way_of
from coterie.learning.learner import LocalLearner, Totals
from coterie.learning.loss import GSPO, Clip, Loss, PolicyGradient
from coterie.learning.masks import attention_masks
from coterie.learning.optimizer import OptimizerConfig, learning_rate
from coterie.learning.policy import Policy
from coterie.models import attention, threads
from coterie.models.meter import Meter
from coterie.run.metrics import update_metrics
from tests.toys import policies, tiny

END = 2


def sample(prompt, completion, logprobs=None, policy="p", temperature=1.0) -> Sample:
    return Sample(
        "a",
        policy,
        0,
        tuple(prompt),
        tuple(completion),
        tuple(logprobs or [-1.0] * len(completion)),
        "stop",
        "",
        temperature=temperature,
    )


def experience(
    seed: int = 0, groups: int = 3, size: int = 4, prompt: int = 7, longest: int = 6, temperature: float = 1.0
) -> list[Graded]:
    """Groups with prompts of different length, completions of different length, an advantage each."""
    rng = Random(seed)
    graded = []
    for number in range(groups):
        ids = [rng.randrange(3, 250) for _ in range(prompt + number)]
        for _ in range(size):
            reply = [rng.randrange(3, 250) for _ in range(rng.randrange(0, longest))] + [END]
            old = [-5.0 + rng.random() for _ in reply]
            graded.append(
                Graded(sample(ids, reply, old, temperature=temperature), rng.uniform(-2, 2), 1.0, f"g{number}")
            )
    return graded


def learner(model=None, loss=Clip(), **config) -> LocalLearner:  # noqa: B008
    return LocalLearner(policies({"p": model or tiny()}, **{"lr": 1e-3, "clip_norm": 1e9, **config}), loss, 10)


def gradient(learner: LocalLearner, rows: list[Row]) -> torch.Tensor:
    net = learner.trainees["p"].model.net
    net.zero_grad(set_to_none=True)
    learner.accumulate("p", rows)
    return torch.cat([weight.grad.flatten() for weight in net.parameters() if weight.grad is not None])


def reference_gradient(model, rows: list[Row], loss: Loss) -> torch.Tensor:
    """Row by row, the plain way: the whole sequence, no packing, no mask, the formula written out."""
    net = copy.deepcopy(model.net)
    total = torch.zeros(())
    for row in rows:
        ids = torch.tensor([row.prompt_ids + row.completion_ids])
        logits = net(input_ids=ids, use_cache=False).logits[0].float() / row.temperature
        logits[:, model.vocabulary :] = float("-inf")
        logprobs = torch.log_softmax(logits, -1)
        for at, (token, old) in enumerate(zip(row.completion_ids, row.rollout_logprobs, strict=True)):
            new = logprobs[len(row.prompt_ids) + at - 1, token]
            ratio = torch.exp(new - old)
            clipped = ratio.clamp(1 - loss.epsilon, 1 + (loss.epsilon_high or loss.epsilon))  # pyright: ignore[reportAttributeAccessIssue]
            total = total - row.token_weight * torch.minimum(ratio * row.advantage, clipped * row.advantage)
    total.backward()
    return torch.cat([weight.grad.flatten() for weight in net.parameters() if weight.grad is not None])


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0, 0.0])
def test_the_log_probabilities_of_a_reply_are_those_of_a_plain_forward_at_its_temperature(temperature):
    policy = policies({"p": tiny(scale=2.0)})["p"]
    prompt, reply = (3, 4, 5, 6), (7, 8, 9)
    logits = policy.model.net(torch.tensor([prompt + reply]), use_cache=False).logits[0].detach().float()
    logits[:, policy.vocabulary :] = float("-inf")
    told = torch.log_softmax(logits / (temperature or 1.0), -1)[len(prompt) - 1 : -1].detach()
    wanted = [float(told[at, token]) for at, token in enumerate(reply)]
    found = forward.logprobs_of(policy, sample(prompt, reply, temperature=temperature))
    assert found == pytest.approx(wanted, abs=1e-5)


def one_mask(model, ends: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The mask of a network whose layers are alike, where positions do not matter."""
    mask = attention_masks(model.config, ends, torch.zeros_like(ends), dtype)
    assert isinstance(mask, torch.Tensor)
    return mask


def relative(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left - right).norm() / right.norm())


@pytest.mark.parametrize(("lean", "checkpointing"), [(True, False), (False, False), (False, True)])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_shared_prefix_gradient_equals_row_by_row(lean, checkpointing, temperature):
    rows = rows_of(experience(temperature=temperature), Clip(denominator="tokens"))
    trainer = learner(replace(tiny(scale=3.0), lean=lean), checkpointing=checkpointing)
    assert (trainer.trainees["p"].lean is not None) is lean
    expected = reference_gradient(trainer.trainees["p"].model, rows, trainer.loss)
    assert relative(gradient(trainer, rows), expected) < 1e-5


def test_eager_attention_gives_the_same_gradient():
    rows = rows_of(experience(), Clip(denominator="tokens"))
    model = replace(tiny(scale=3.0), lean=False)
    expected = reference_gradient(model, rows, Clip())
    model.net.set_attn_implementation("eager")
    assert relative(gradient(learner(model), rows), expected) < 1e-5


def test_prompts_that_begin_alike_share_their_beginning():
    rng = Random(1)
    start = [rng.randrange(3, 250) for _ in range(12)]
    graded = [
        Graded(sample(start + [rng.randrange(3, 250) for _ in range(4)], [7, 8, END]), rng.uniform(-1, 1), 1.0, f"g{n}")
        for n in range(5)
    ]
    rows = rows_of(graded, Clip(denominator="tokens"))
    packs = pack(rows, 1000)
    assert [(one.shared, len(one.rows)) for one in packs] == [(12, 5)]
    assert packs[0].tokens == 12 + 5 * (4 + 3 - 1)  # the last token of a reply predicts nothing
    trainer = learner(tiny(scale=3.0))
    expected = reference_gradient(trainer.trainees["p"].model, rows, trainer.loss)
    assert relative(gradient(trainer, rows), expected) < 1e-5


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 99), budget=st.sampled_from([1, 30, 61, 200, 10_000]), data=st.data())
def test_gradient_does_not_depend_on_micro_batch_order_or_padding(seed, budget, data):
    """D11: a batch was padded with copies of its head, which were then trained."""
    rows = rows_of(experience(seed), Clip(denominator="tokens"))
    model = tiny(scale=3.0)
    whole = gradient(learner(model), rows)
    order = data.draw(st.permutations(rows))
    assert relative(gradient(learner(model, tokens_per_microbatch=budget), list(order)), whole) < 1e-5


def test_large_networks_pack_by_what_a_mask_computes_and_learn_the_same(monkeypatch):
    """Four prompts that begin alike, in pairs that go on alike: under a mask a pair's rest is computed once."""
    prompts = [(*range(20, 32), *range(pair, pair + 4), last) for pair in (40, 60) for last in (5, 6)]
    graded = [Graded(sample(ids, [7, END], [-5.0, -5.0]), 1.0 + at, 1.0, f"g{at}") for at, ids in enumerate(prompts)]
    found = {}
    for large in (0, 50_000_000):
        monkeypatch.setattr("coterie.models.load.LARGE", large)
        trainer = learner(tokens_per_microbatch=30)
        rows = rows_of(graded, trainer.loss)
        found[large] = [len(batch) for batch in trainer.microbatches("p", rows)], gradient(trainer, rows)
    assert found[0][0] == [1], "12 + 2 x 4 + 4 x 2 = 28 tokens"
    assert found[50_000_000][0] == [1, 1], "three are 12 + 3 x 6 = 30"
    assert torch.allclose(found[0][1], found[50_000_000][1], rtol=0, atol=1e-6)


@given(seed=st.integers(0, 999), budget=st.integers(1, 300), longest=st.integers(1, 300), apart=st.booleans())
def test_packing_keeps_every_row_once_and_its_first_token_predictable(seed, budget, longest, apart):
    rows = rows_of(experience(seed), Clip(denominator="tokens"))
    packs = pack(rows, longest, lambda _: apart)
    batches = microbatches(packs, budget)
    assert sorted(row for batch in batches for one in batch for row in one.rows) == sorted(rows)
    for one in packs:
        prompts = [row.prompt_ids for row in one.rows]
        assert all(prompt[: one.shared] == prompts[0][: one.shared] for prompt in prompts)
        assert all(one.shared < len(prompt) for prompt in prompts)
        assert len(one.rows) == 1 or (one.tokens if apart else one.fewest) <= longest
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(one.fewest for one in batch) <= budget


# 3 + 1 = 4 trained tokens: 1/4 each; by sequences: 1/(2 x 3) = 1/6 and 1/(2 x 1) = 1/2
def test_token_weights_by_hand():
    graded = [Graded(sample([5], [6, 7, END]), 1.0, 1.0, "g"), Graded(sample([5], [END]), -1.0, 1.0, "g")]
    assert [row.token_weight for row in rows_of(graded, Clip(denominator="tokens"))] == [0.25, 0.25]
    assert [row.token_weight for row in rows_of(graded, Clip(denominator="sequences"))] == pytest.approx([1 / 6, 1 / 2])


# one group that stands for four: 4 / 1, of shares 1/3 over 3 and 1 tokens
def test_the_weights_of_a_part_that_stands_for_the_whole_by_hand():
    graded = [
        Graded(sample([5], [6, 7, END]), 1.0, 1.0, "g", 1 / 3), Graded(sample([5], [END]), -1.0, 1.0, "g", 1 / 3)
    ]  # fmt: skip
    alone = [row.token_weight for row in rows_of(graded, Clip(denominator="tasks"))]
    assert [row.token_weight for row in rows_of(graded, Clip(denominator="tasks"), groups=4)] == [
        4 * weight for weight in alone
    ]


def test_the_denominator_is_counted_per_policy():
    graded = experience()
    models = {"p": tiny(1), "q": tiny(2)}
    both = LocalLearner(policies(models, lr=1e-3), Clip(), 10)
    other = [Graded(sample([9, 9], [5] * 40 + [END], policy="q"), 1.0, 1.0, "h")]
    alone = LocalLearner(policies({"p": tiny(1)}, lr=1e-3), Clip(), 10)
    left = both.update({"p": graded, "q": other}, 0)["p"]
    right = alone.update({"p": graded}, 0)["p"]
    assert left == right


def test_a_policy_moves_by_its_own_rows_only_and_is_bit_identical_without_any():
    models = {"p": tiny(1), "q": tiny(2)}
    before = {name: copy.deepcopy(model.net.state_dict()) for name, model in models.items()}
    team = LocalLearner(policies(models, lr=1e-3, weight_decay=0.1), Clip(), 10)
    team.update({"p": experience(), "q": []}, 0)
    team.update({"p": experience(1), "q": []}, 1)
    assert all(torch.equal(value, before["q"][key]) for key, value in models["q"].net.state_dict().items())
    assert any(not torch.equal(value, before["p"][key]) for key, value in models["p"].net.state_dict().items())


def test_before_the_first_update_the_ratio_is_one_and_kl_to_the_start_is_zero():
    model = tiny(scale=3.0)
    rows = experience()
    probe = learner(model)
    graded = []
    for batch in probe.microbatches("p", rows_of(rows, Clip(denominator="tokens"))):
        layout = lay_out(batch)
        logprobs = iter(score(model, layout, torch.float32).logprobs.tolist())
        for row in layout.rows:
            own = sample(row.prompt_ids, row.completion_ids, [next(logprobs) for _ in row.completion_ids])
            graded.append(Graded(own, row.advantage, 1.0, row.group))
    metrics = learner(model, Clip(kl=0.1)).update({"p": graded}, 0)["p"].metrics
    assert metrics["ratio"] == pytest.approx(1.0, rel=0, abs=1e-5)
    assert metrics["clip_share"] == 0.0
    assert metrics["kl_k3"] == pytest.approx(0.0, rel=0, abs=1e-6)
    assert metrics["mismatch_max"] < 1e-4


def test_kl_holds_the_policy_back():
    far = {}
    for weight in (0.0, 5.0):
        trainer = learner(tiny(scale=3.0), PolicyGradient(kl=weight), schedule="constant")
        start = copy.deepcopy(trainer.trainees["p"].model.net.state_dict())
        for step in range(8):
            trainer.update({"p": experience()}, step)
        moved = trainer.trainees["p"].model.net.state_dict()
        far[weight] = sum(float((moved[key] - start[key]).norm()) for key in start)
    assert far[5.0] < far[0.0]


@pytest.fixture
def beside(monkeypatch) -> Iterator[list[int]]:
    """Two threads, each as good as two at one thing. The threads in which gradients were computed."""
    before, where = torch.get_num_threads(), list[int]()
    gradient = LocalLearner._gradient

    def seen(self, *arguments):
        where.append(threading.get_ident())
        return gradient(self, *arguments)

    torch.set_num_threads(2)
    monkeypatch.setattr(LocalLearner, "_gradient", seen)
    monkeypatch.setattr(threads, "_seconds", lambda count: 1 / count)
    yield where
    torch.set_num_threads(before)


def test_policies_that_may_be_trained_side_by_side_share_what_a_micro_batch_may_hold(beside, monkeypatch):
    """Whether or not they are: it is a matter of time, and what it gives must not be."""
    rows = rows_of(experience(groups=8), Clip())
    models = policies({name: tiny(hidden=64, keys=2) for name in "pq"}, tokens_per_microbatch=200)
    several = LocalLearner(models, Clip(), 10).microbatches("p", rows)
    half = LocalLearner(policies({"p": tiny(hidden=64, keys=2)}, tokens_per_microbatch=100), Clip(), 10)
    assert several == half.microbatches("p", rows)
    whole = LocalLearner(policies({"p": tiny(hidden=64, keys=2)}, tokens_per_microbatch=200), Clip(), 10)
    assert len(several) > len(whole.microbatches("p", rows))
    monkeypatch.setattr(threads, "_alike", lambda *_: False)
    never = LocalLearner(models, Clip(), 10)
    assert never.microbatches("p", rows) == whole.microbatches("p", rows), "who may not be has all of it"


def test_an_error_of_any_kind_leaves_no_gradients_and_two_policies_are_two_networks(beside, monkeypatch):
    team = LocalLearner(policies({name: tiny(hidden=64, keys=2) for name in "pq"}), Clip(), 10)
    accumulate = LocalLearner.accumulate

    def failing(self, name, *arguments):
        if name == "q":
            raise RuntimeError("out of memory")
        return accumulate(self, name, *arguments)

    monkeypatch.setattr(LocalLearner, "accumulate", failing)
    with pytest.raises(RuntimeError, match="out of memory"):
        team.update({"p": experience(1), "q": experience(2)}, 0)
    team.close()
    weights = [one for trainee in team.trainees.values() for one in trainee.model.net.parameters()]
    assert all(weight.grad is None for weight in weights)
    same = tiny()
    with pytest.raises(ValueError, match="two of the policies p, q are one network"):
        LocalLearner(policies({"p": same, "q": same}), Clip(), 10)


@pytest.mark.parametrize("longest", [2, 6, 30])
@pytest.mark.parametrize("row", [-(1 << 40), 1 << 40])
def test_policies_of_small_networks_have_their_gradients_side_by_side_and_the_same(beside, row, longest, monkeypatch):
    def moved(graded: dict[str, list[Graded]]) -> list[torch.Tensor]:
        models = {"p": tiny(1, hidden=64, keys=2), "q": tiny(2, hidden=64, keys=2)}
        team = LocalLearner(policies(models), Clip(), 10)  # each with half of its tokens at once
        learned = team.update(graded, 0)
        team.close()
        assert list(learned) == list(graded)
        return [weight.detach() for name in graded for weight in models[name].net.parameters()]

    monkeypatch.setattr(attention, "ROW", row)
    graded = {"p": experience(1, prompt=20, longest=longest), "q": experience(2, longest=longest)}
    both = moved(graded)
    assert threading.get_ident() not in beside
    assert all(map(torch.equal, both, moved({"p": graded["p"]}) + moved({"q": graded["q"]})))


@pytest.mark.parametrize("hidden", [16, 64])
@pytest.mark.parametrize("kind", ["advantage", "weights"])
def test_a_nan_stops_with_step_policy_and_group_and_moves_no_weight(kind, hidden, beside):
    """One after the other and side by side: 16 columns are not the same with any number of threads on most machines."""
    models = {"p": tiny(1, hidden=hidden, keys=2), "q": tiny(2, hidden=hidden, keys=2)}
    team = LocalLearner(policies(models), Clip(), 10)
    graded = experience()
    if kind == "advantage":
        graded[5] = Graded(graded[5].sample, float("nan"), 1.0, graded[5].group)
    else:
        graded[5] = Graded(sample(graded[5].sample.prompt_ids, [7, END], [-1e5, -1.0]), 1e30, 1.0, "g1")
    before = {name: copy.deepcopy(model.net.state_dict()) for name, model in models.items()}
    other = [Graded(one.sample, one.advantage, 1.0, one.group) for one in experience(3)]
    with pytest.raises(UpdateError, match="the update of policy 'q' is not finite, in group g1"):
        team.update({"p": other, "q": graded}, 4)
    for name, model in models.items():
        assert all(torch.equal(value, before[name][key]) for key, value in model.net.state_dict().items())
        assert all(weight.grad is None for weight in model.net.parameters())
    assert hidden == 16 or threading.get_ident() not in beside
    team.close()


def test_masked_and_unsampled_tokens_get_no_gradient_and_the_end_token_does():
    """D20: where pad equals end-of-text, the end was never trained."""
    model = tiny(scale=3.0)
    model.tokenizer.pad_token_id = END
    rows = rows_of([Graded(sample([5, 6, 7], [END]), 1.0, 1.0, "g")], Clip())
    trainer = learner(model, PolicyGradient())
    assert float(gradient(trainer, rows).norm()) > 0
    rows = rows_of([Graded(sample([5, 6, 7], [9, END]), 0.0, 1.0, "g")], Clip(kl=0.1))
    assert float(gradient(trainer, rows).norm()) == 0


def test_updates_per_step_keeps_groups_whole_and_trains_each_once():
    trainer = learner(updates_per_step=3)
    graded = experience(groups=7)
    parts = trainer._parts("p", graded, 0)
    assert sorted(len({one.group for one in part}) for part in parts) == [2, 2, 3]
    assert sorted(one.group for part in parts for one in part) == sorted(one.group for one in graded)
    assert trainer._parts("p", list(reversed(graded)), 0)[0][0].group == parts[0][0].group
    assert any(trainer._parts("p", graded, step) != parts for step in range(1, 5))
    assert trainer.update({"p": graded}, 0)["p"].metrics["trained_sequences"] == len(graded)


def replies(*lengths: int, group: str, advantages: tuple[float, ...], share: float = 1.0) -> list[Graded]:
    """Members of one group by the length of their replies."""
    return [
        Graded(sample([5, 6, 7], [9 + at] * (length - 1) + [END]), advantage, 1.0, group, share)
        for at, (length, advantage) in enumerate(zip(lengths, advantages, strict=True))
    ]


# A live group of replies of 2 and 3 tokens, a flat one of 5 and 10: 20 tokens, 4 sequences, 2 tasks of 2 members
FLAT = {"tokens": [1 / 20, 1 / 20], "sequences": [1 / 8, 1 / 12], "tasks": [1 / 4, 1 / 4]}


@pytest.mark.parametrize("denominator", FLAT)
def test_a_flat_group_counts_in_the_mean_and_is_not_computed(denominator):
    graded = replies(2, 3, group="live", advantages=(1.0, -1.0), share=1 / 4)
    graded += replies(5, 10, group="flat", advantages=(0.0, 0.0), share=1 / 4)
    assert [row.token_weight for row in rows_of(graded, Clip(denominator=denominator))] == pytest.approx(
        FLAT[denominator], rel=1e-12
    )
    assert len(rows_of(graded, Clip(denominator=denominator, kl=0.1))) == 4
    trained = learner(loss=Clip(denominator=denominator)).update({"p": graded}, 0)["p"].metrics
    assert trained["trained_tokens"] == 5


def test_a_flat_group_is_trained_for_its_kl():
    """Its whole loss is kl x k3 summed over its tokens and divided by them; without KL nothing moves."""
    graded = replies(2, 4, group="flat", advantages=(0.0, 0.0))
    still = learner(tiny(scale=3.0), Clip())
    assert still.update({"p": graded}, 0) == {}
    trainer = learner(tiny(scale=3.0), Clip(kl=0.5))
    model = trainer.trainees["p"].model
    with torch.no_grad():
        for weight in model.net.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    graded = [at_its_own_weights(model, one) for one in graded]
    found = trainer.update({"p": graded}, 0)["p"].metrics
    assert found["kl_k3"] > 1e-4
    assert found["loss"] == pytest.approx(0.5 * found["kl_k3"], rel=1e-4)
    assert found["grad_norm"] > 0


def at_its_own_weights(model, graded: Graded) -> Graded:
    """With the log-probabilities of the model as it is: the ratio is 1."""
    one = graded.sample
    ids = torch.tensor([one.prompt_ids + one.completion_ids])
    with torch.no_grad():
        logits = model.net(input_ids=ids, use_cache=False).logits[0].float()
    logits[:, model.vocabulary :] = float("-inf")
    logprobs = torch.log_softmax(logits, -1)
    start = len(one.prompt_ids) - 1
    found = tuple(float(logprobs[start + at, token]) for at, token in enumerate(one.completion_ids))
    return dataclasses.replace(graded, sample=dataclasses.replace(one, logprobs=found))


@pytest.mark.parametrize("denominator", ["tokens", "sequences", "tasks"])
def test_a_part_of_a_step_is_an_estimate_of_the_whole(denominator):
    """Equal parts of "sequences" and "tasks" average to the whole step's gradient; "tokens" weighed by its tokens."""
    loss = Clip(denominator=denominator)
    trainer = learner(tiny(scale=3.0), loss, updates_per_step=2)
    graded = [dataclasses.replace(one, share=1 / (4 * 4)) for one in experience(groups=4)]
    parts = trainer._parts("p", graded, 0)
    assert [len(part) for part in parts] == [8, 8]
    shares = [0.5, 0.5]
    if denominator == "tokens":
        counts = [sum(len(one.sample.completion_ids) for one in part) for part in parts]
        shares = [count / sum(counts) for count in counts]
    gradients = [gradient(trainer, rows_of(part, Clip(denominator=denominator), groups=4)) for part in parts]
    average = sum(share * one for share, one in zip(shares, gradients, strict=True))
    assert relative(average, gradient(trainer, rows_of(graded, Clip(denominator=denominator)))) < 1e-5


def test_the_update_weighs_a_part_by_all_of_the_step_groups(monkeypatch):
    trainer = learner(loss=Clip(denominator="tasks"), updates_per_step=2)
    weights: list[set[float]] = []
    accumulate = trainer.accumulate
    monkeypatch.setattr(trainer, "accumulate", lambda name, rows: (
        weights.append({row.token_weight for row in rows}), accumulate(name, rows))[1])  # fmt: skip
    trainer.update({"p": [dataclasses.replace(one, share=1 / 16) for one in experience(groups=4)]}, 0)
    assert weights == [{2 / 16}, {2 / 16}]


CORRECTIONS = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]


def sampled_by(model, graded: list[Graded], factor: float) -> list[Graded]:
    """As an engine would have reported them whose tokens are `factor` times as likely as the learner's."""
    own = [at_its_own_weights(model, one) for one in graded]
    return [
        replace(one, sample=replace(one.sample, logprobs=tuple(old + math.log(factor) for old in one.sample.logprobs)))
        for one in own
    ]


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_an_engine_that_samples_as_the_learner_needs_no_correction(correction):
    model = tiny(scale=3.0)
    graded = sampled_by(model, experience(), 1.0)
    plain, corrected = (
        gradient(learner(model, loss), rows_of(graded, loss)) for loss in (Clip(), Clip(correction=correction))
    )
    assert relative(corrected, plain) < 1e-5


def test_a_token_that_the_engine_finds_less_likely_weighs_more_up_to_the_bound():
    """A third as likely: 3, cut to 2; half more likely: 2 / 3, which a mask from 0.7 on leaves out."""
    model = tiny(scale=3.0)
    plain = gradient(learner(model, PolicyGradient()), rows_of(sampled_by(model, experience(), 1.0), PolicyGradient()))
    for factor, bounds, weight in (
        (1 / 3, {"correction": "token_truncate"}, 2.0),
        (1 / 3, {"correction": "token_truncate", "correction_max": 4.0}, 3.0),
        (1.5, {"correction": "token_mask", "correction_min": 0.6}, 2 / 3),
        (1.5, {"correction": "token_mask", "correction_min": 0.7}, 0.0),
    ):
        loss = PolicyGradient(**bounds)
        weighed = gradient(learner(model, loss), rows_of(sampled_by(model, experience(), factor), loss))
        assert float((weighed - weight * plain).norm() / plain.norm()) < 1e-5


def test_a_later_optimizer_step_is_compared_with_the_weights_before_the_first(monkeypatch):
    loss = Clip(correction="token_truncate")
    model = copy.deepcopy(tiny(scale=3.0))
    trainer = learner(model, loss, updates_per_step=2, lr=1e-2)
    graded = sampled_by(model, experience(groups=4), 0.8)
    before = {one.sample.completion_ids: at_its_own_weights(model, one).sample.logprobs for one in graded}
    seen: list[tuple[Row, torch.Tensor]] = []
    forward = LocalLearner.forward

    def watched(self, name, batch):
        done = forward(self, name, batch)
        lengths = [len(row.completion_ids) for row in done.layout.rows]
        seen.extend(zip(done.layout.rows, done.tokens.old.split(lengths), strict=True))
        return done

    monkeypatch.setattr(LocalLearner, "forward", watched)
    metrics = trainer.update({"p": graded}, 0)["p"].metrics
    later = [row for row, _ in seen if row.old_logprobs]
    assert len(later) == 8
    for row, old in seen:
        assert old.tolist() == pytest.approx(before[row.completion_ids], abs=1e-5)
    now = at_its_own_weights(model, graded[0]).sample.logprobs
    assert now != pytest.approx(before[graded[0].sample.completion_ids], abs=1e-2), "the weights have moved"
    assert metrics["correction"] == pytest.approx(1.25, abs=1e-4)
    assert metrics["correction_max"] == pytest.approx(1.25, abs=1e-4)
    assert metrics["correction_cut"] == 0
    first, *later = learner(model, loss, updates_per_step=3)._rows("p", graded, 0)
    assert [bool(row.old_logprobs) for part in (first, *later) for row in part] == [False] * 8 + [True] * 8
    assert metrics["mismatch"] == pytest.approx(-math.log(0.8), abs=1e-4)


def stepped(trainer: LocalLearner, graded: list[Graded]) -> dict[str, torch.Tensor]:
    """The gradients that the optimizer is given."""
    model, found = trainer.trainees["p"].model, {}
    step = trainer.trainees["p"].optimizer.step

    def look(*args, **kwargs):
        found.update({name: weight.grad.clone() for name, weight in model.net.named_parameters()})
        return step(*args, **kwargs)

    trainer.trainees["p"].optimizer.step = look
    trainer.update({"p": graded}, 0)
    return found


def test_a_gradient_longer_than_the_bound_is_scaled_down_to_it_and_a_shorter_one_is_kept():
    def norm(gradients: dict[str, torch.Tensor]) -> float:
        return float(torch.cat([one.flatten() for one in gradients.values()]).norm())

    whole = stepped(learner(tiny(scale=3.0), clip_norm=1e9), experience())
    length = norm(whole)
    clipped = stepped(learner(tiny(scale=3.0), clip_norm=length / 4), experience())
    assert norm(clipped) == pytest.approx(length / 4, rel=1e-4)
    for name, one in clipped.items():
        assert torch.allclose(4 * one, whole[name], rtol=1e-3, atol=1e-7)
    kept = stepped(learner(tiny(scale=3.0), clip_norm=2 * length), experience())
    assert all(torch.equal(one, whole[name]) for name, one in kept.items())


def test_weight_decay_takes_its_share_of_every_weight():
    """AdamW: w <- w (1 - lr decay) - lr m / (sqrt v + eps), so the two runs differ by lr decay w exactly."""
    models = [tiny(scale=3.0), tiny(scale=3.0)]
    before = {name: weight.clone() for name, weight in models[0].net.named_parameters()}
    for model, decay in zip(models, (0.0, 0.1), strict=True):
        learner(model, lr=1e-2, weight_decay=decay, schedule="constant").update({"p": experience()}, 0)
    plain, decayed = (dict(model.net.named_parameters()) for model in models)
    for name, weight in before.items():
        assert torch.allclose(plain[name] - decayed[name], 1e-2 * 0.1 * weight, rtol=1e-3, atol=1e-7), name


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_rate_rises_over_the_warm_up_and_never_again(schedule):
    """D15: the published schedule went up and down for ever."""
    config = OptimizerConfig(
        lr=1.0, warmup_steps=5, schedule=schedule, min_lr_share=0.1 if schedule != "constant" else 0.0
    )
    rates = [learning_rate(config, step, 50) for step in range(50)]
    assert rates[:5] == sorted(rates[:5])
    assert rates[5] == pytest.approx(1.0)
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert all(0 < rate <= 1 for rate in rates)


# linear, 4 steps, no warm-up: 1, 3/4, 2/4, 1/4
def test_a_linear_schedule_by_hand():
    config = OptimizerConfig(lr=2.0)
    assert [learning_rate(config, step, 4) for step in range(4)] == [2.0, 1.5, 1.0, 0.5]


# a quarter, two, three quarters of 4; the peak; then 4 steps down to 0: 4, 3, 2, 1
def test_a_warm_up_by_hand():
    config = OptimizerConfig(lr=4.0, warmup_steps=3)
    assert [learning_rate(config, step, 7) for step in range(7)] == [1.0, 2.0, 3.0, 4.0, 3.0, 2.0, 1.0]
    cosine = OptimizerConfig(lr=4.0, schedule="cosine", min_lr_share=0.5)  # halfway between 4 and 2
    assert [learning_rate(cosine, step, 4) for step in (0, 2)] == pytest.approx([4.0, 3.0])


@pytest.mark.parametrize("total", [0, -1])
def test_a_schedule_needs_a_positive_total(total):
    with pytest.raises(ValueError, match="positive"):
        learning_rate(OptimizerConfig(), 0, total)


def moved(trainer: LocalLearner, step: int, graded: list[Graded]) -> dict[str, torch.Tensor]:
    trainer.update({"p": graded}, step)
    return {name: weight.detach().clone() for name, weight in trainer.trainees["p"].model.net.named_parameters()}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(weight, right[name]) for name, weight in left.items())


def test_weights_move_at_the_rate_of_the_step():
    half = learner(lr=1e-2, schedule="linear")  # 5 of 10 steps
    assert half.update({"p": experience()}, 5)["p"].metrics["lr"] == pytest.approx(5e-3)
    after = dict(half.trainees["p"].model.net.named_parameters())
    assert same(moved(learner(lr=5e-3, schedule="constant"), 5, experience()), after)
    assert not same(moved(learner(lr=1e-2, schedule="constant"), 5, experience()), after)


def test_a_learner_that_goes_on_from_a_checkpoint_goes_on_as_the_one_that_wrote_it(tmp_path):
    whole = learner(copy.deepcopy(tiny()))
    whole.update({"p": experience()}, 5)  # of 10: half the rate
    model = whole.trainees["p"].model
    model.save(tmp_path / "policies" / "p", whole.weights("p"))
    whole.save(tmp_path)
    other = LocalLearner(
        policies({"p": copy.deepcopy(tiny())}, lr=1e-3, clip_norm=1e9), Clip(), 10, checkpoint=tmp_path
    )
    fresh = learner(copy.deepcopy(model))
    assert other.trainees["p"].optimizer.param_groups[0]["lr"] == 5e-4, "a checkpoint that is written again is the same"
    after = moved(whole, 1, experience(1))
    assert same(moved(other, 1, experience(1)), after)
    assert not same(moved(fresh, 1, experience(1)), after)


def test_the_averages_of_the_optimizer_are_those_of_the_config():
    """After one step they are (1 - beta) g and (1 - beta) g^2."""
    trainer = learner(betas=(0.5, 0.75))
    gradients = stepped(trainer, experience())
    names = [name for name, _ in trainer.trainees["p"].model.net.named_parameters()]
    for name, state in zip(names, trainer.trainees["p"].optimizer.state_dict()["state"].values(), strict=True):
        assert torch.allclose(state["exp_avg"], 0.5 * gradients[name], rtol=1e-4, atol=1e-9)
        assert torch.allclose(state["exp_avg_sq"], 0.25 * gradients[name] ** 2, rtol=1e-4, atol=1e-12)


def test_what_is_added_to_the_root_of_the_squares_is_that_of_the_config():
    """A first step, whose averages are the gradient and its square, is lr g / (|g| + eps)."""
    trainer = learner(eps=0.1, lr=0.5)
    before = {name: weight.detach().clone() for name, weight in trainer.trainees["p"].model.net.named_parameters()}
    gradients = stepped(trainer, experience())
    rate = trainer.trainees["p"].optimizer.param_groups[0]["lr"]
    for name, weight in trainer.trainees["p"].model.net.named_parameters():
        wanted = before[name] - rate * gradients[name] / (gradients[name].abs() + 0.1)
        assert torch.allclose(weight, wanted, rtol=1e-4, atol=1e-6)


def dealt(step: int, seed: int = 0) -> list[set[str]]:
    """The groups of each optimizer step."""
    trainer = LocalLearner(policies({"p": tiny()}, updates_per_step=2), Clip(), 10, seed=seed)
    found: list[set[str]] = []
    trainer._gradient = lambda name, rows, number: found.append({row.group for row in rows}) or Totals()
    trainer.trainees["p"].optimizer.step = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    with contextlib.suppress(ZeroDivisionError):  # nothing was trained, so there are no means
        trainer.update({"p": experience(groups=8, size=2)}, step)
    return found


def test_groups_are_dealt_out_by_seed_and_step():
    assert dealt(0) == dealt(0)
    assert len({str(list(map(sorted, dealt(step)))) for step in range(4)}) > 1
    assert len({str(list(map(sorted, dealt(0, seed)))) for seed in range(4)}) > 1


def test_the_norm_that_is_told_is_the_mean_over_the_optimizer_steps():
    trainer, norms = learner(updates_per_step=2), []
    gradient_of = trainer._gradient

    def watched(*args):
        totals = gradient_of(*args)
        norms.extend(totals.norms)
        return totals

    trainer._gradient = watched  # pyright: ignore[reportAttributeAccessIssue]
    told = trainer.update({"p": experience(groups=4)}, 0)["p"].metrics["grad_norm"]
    assert len(norms) == 2
    assert told == pytest.approx(sum(norms) / 2)


def test_what_is_told_of_an_update_does_not_depend_on_its_micro_batches():
    told = [learner(tokens_per_microbatch=budget).update({"p": experience()}, 0)["p"].metrics for budget in (10, 9999)]
    assert told[0] == pytest.approx(told[1], rel=1e-4, abs=1e-5)
    model, rows = tiny(), rows_of(experience(), Clip(denominator="tokens"))
    layout = lay_out(pack(rows, 9999))
    old = torch.tensor([value for row in layout.rows for value in row.rollout_logprobs])
    difference = (score(model, layout, torch.float32).logprobs.detach() - old).abs()
    assert told[0]["mismatch"] == pytest.approx(float(difference.mean()), rel=1e-4)
    assert told[0]["mismatch_max"] == pytest.approx(float(difference.max()), rel=1e-4)


@pytest.mark.parametrize("far", ["g0", "g1", "g2"])
def test_the_largest_mismatch_is_that_of_the_whole_step(far):
    graded = [
        replace(one, sample=replace(one.sample, logprobs=(-9.0,) * len(one.sample.logprobs)))
        if one.group == far
        else one
        for one in experience()
    ]
    told = [learner(tokens_per_microbatch=budget).update({"p": graded}, 0)["p"].metrics for budget in (10, 9999)]
    assert told[0]["mismatch_max"] == pytest.approx(told[1]["mismatch_max"], rel=1e-4)
    assert told[0]["mismatch_max"] > 2


def test_everything_is_computed_where_the_model_is(monkeypatch):
    """Tensors of the meta device hold no numbers, and none of another device may meet them."""

    monkeypatch.setattr(torch, "autocast", lambda *args, **settings: contextlib.nullcontext())  # it knows no meta
    model, rows = tiny(), rows_of(experience(), Clip(denominator="tokens"))
    model.net.to("meta")
    layout = lay_out(pack(rows, 400))
    scores = score(model, layout, torch.float32)
    assert {one.device.type for one in (scores.logprobs, scores.entropy, scores.steepness)} == {"meta"}
    assert one_mask(model, layout.ends.to("meta"), torch.float32).device.type == "meta"
    assert layout.spread([1.0] * len(layout.rows), model.device).device.type == "meta"
    for loss in (Clip(), Clip(kl=0.1)):
        done = learner(model, loss).forward("p", pack(rows, 400))
        tokens = done.tokens
        named = (done.loss, tokens.old, tokens.advantages, tokens.rows, tokens.lengths, done.reference)
        assert {tensor.device.type for tensor in named if tensor is not None} == {"meta"}


def test_only_the_clipped_surrogate_has_a_share_of_clipped_tokens():
    graded = [Graded(sample([5, 6], [7, END], [-9.0, -9.0]), sign, 1.0, "g") for sign in (1.0, 1.0, 1.0, -1.0)]
    assert learner().update({"p": graded}, 0)["p"].metrics["clip_share"] == 0.75  # a worse ratio is never clipped
    plain = learner(loss=PolicyGradient())
    assert "clip_share" not in plain.update({"p": graded}, 0)["p"].metrics


def test_the_head_is_taken_in_chunks_and_the_gradient_is_the_same(monkeypatch):
    rows = rows_of(experience(), Clip(denominator="tokens"))
    trainer = learner(tiny(scale=3.0))
    expected = reference_gradient(trainer.trainees["p"].model, rows, trainer.loss)
    monkeypatch.setattr(forward, "at_once", lambda vocabulary: 5)
    assert relative(gradient(trainer, rows), expected) < 1e-5


def test_logits_that_are_taken_in_parts_are_not_kept(monkeypatch):
    model, layout = tiny(), lay_out(pack([row(range(5, 15 + number), 30) for number in range(8)], 4000))
    live: list[int] = []
    for size in (10_000, 5):
        monkeypatch.setattr(forward, "at_once", lambda vocabulary, size=size: size)
        with Meter(model.net.state_dict().values()) as taken:
            scores = score(model, layout, torch.float32)
            live.append(taken.live)
            scores.logprobs.sum().backward()
    assert live[0] - live[1] > len(layout.targets) * model.vocabulary * 4 - 999  # logits of each token that is trained


def test_a_mask_is_of_the_type_that_the_network_computes_in():
    mask = one_mask(tiny(), torch.tensor([[4, 2, 4, 4, 5]]), torch.bfloat16)
    assert mask.dtype == torch.bfloat16
    seen = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
    assert (mask[0, 0, :4, :4] == 0).int().tolist() == seen
    layout = lay_out(pack(rows_of(experience(), Clip(denominator="tokens")), 200))
    found, exact = (score(tiny(), layout, dtype).logprobs.detach() for dtype in (torch.bfloat16, torch.float32))
    assert not torch.equal(found, exact)
    assert torch.allclose(found, exact, atol=0.1)


# 1 2 3 4, then 9 after 1 2 3, then 6 after 1 2; replies end in a token that is not computed
def test_rows_are_branches_of_a_tree_by_hand():
    rows = [Row((1, 2), reply, (-1.0,) * len(reply), 1.0, 1.0, 1.0, "g") for reply in ((3, 4, 7), (3, 9, 7), (6, 7))]
    (one,) = pack(rows, 99)
    assert (one.alike, one.fewest, one.tokens) == ([0, 3, 2], 6, 1 + 3 + 3 + 2)
    layout = lay_out([one])
    assert layout.ids.tolist() == [[1, 2, 3, 4, 9, 6]]
    assert layout.positions.tolist() == [[0, 1, 2, 3, 3, 2]]
    assert layout.ends.tolist() == [[6, 6, 5, 4, 5, 6]]
    assert layout.predictor.tolist() == [1, 2, 3, 1, 2, 4, 1, 5]
    assert layout.targets.tolist() == [3, 4, 7, 3, 9, 7, 6, 7]
    seen = (one_mask(tiny(), layout.ends, torch.float32)[0, 0] == 0).int().tolist()
    assert seen == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 0, 1, 0],
        [1, 1, 0, 0, 0, 1],
    ]
    by_parts = lay_out([one], "parts")
    assert by_parts.ids.tolist() == [[1, 2, 3, 4, 2, 3, 9, 2, 6]]
    assert by_parts.predictor.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


# 1 | 2 3, 2 and 6 7 | 8, 8 9: of prompts 1 2 and 6 7 8, of which one token stays with the rows
def test_packs_by_parts_are_one_line_with_all_that_is_shared_first():
    of = {(1, 2): [(3, 4), (5,)], (6, 7, 8): [(9,), (9, 3)]}
    packs = [
        Pack(len(prompt) - 1, tuple(Row(prompt, one, (-1.0,) * len(one), 1.0, 1.0, 1.0, "g") for one in replies))
        for prompt, replies in of.items()
    ]
    layout = lay_out(packs, "parts")
    assert layout.ids.tolist() == [[1, 6, 7, 2, 3, 2, 8, 8, 9]]
    assert layout.positions.tolist() == [[0, 0, 1, 1, 2, 1, 2, 2, 3]]
    assert layout.predictor.tolist() == [3, 4, 5, 6, 7, 8]
    assert layout.targets.tolist() == [3, 4, 5, 9, 9, 3]


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), budget=st.sampled_from([40, 400]), lean=st.booleans())
def test_replies_that_begin_alike_share_their_beginning_and_the_gradient_is_the_same(seed, budget, lean):
    """Of few tokens, so that prompts and replies begin alike, and some are the beginning of another."""
    rng = Random(seed)
    graded = [
        Graded(
            sample([5, 6, *(rng.randrange(7, 9) for _ in range(rng.randrange(3)))],
                   [*(rng.randrange(7, 10) for _ in range(rng.randrange(6))), END]),
            rng.uniform(-1, 1), 1.0, f"g{number}",
        )
        for number in range(12)
    ]  # fmt: skip
    rows = rows_of(graded, Clip(denominator="tokens"))
    packs = pack(rows, budget)
    assert sum(lay_out([one]).ids.shape[1] for one in packs) < sum(one.tokens for one in packs)
    trainer = learner(replace(tiny(scale=3.0), lean=lean), tokens_per_microbatch=budget)
    expected = reference_gradient(trainer.trainees["p"].model, rows, trainer.loss)
    assert relative(gradient(trainer, rows), expected) < 1e-5


def test_a_pack_is_as_long_as_a_micro_batch_may_be():
    rows = [row([*range(29), 5 + number]) for number in range(150)]
    packs = [one for batch in learner(tiny(), tokens_per_microbatch=100).microbatches("p", rows) for one in batch]
    assert sorted(one.tokens for one in packs) == [29 + 8, *[29 + 71] * 2]


def test_an_update_that_no_single_group_spoils_says_so(monkeypatch):
    trainer = learner()
    accumulate = trainer.accumulate

    def spoilt(name, rows):
        totals = accumulate(name, rows)
        if len({row.group for row in rows}) > 1:
            totals.loss = math.inf
        return totals

    monkeypatch.setattr(trainer, "accumulate", spoilt)
    with pytest.raises(
        UpdateError, match=r"not finite, in no single group; start a new run with a lower optimizer\.lr$"
    ):
        trainer.update({"p": experience()}, 0)


def test_entropy_of_a_flat_distribution_is_its_logarithm():
    model = tiny()
    with torch.no_grad():
        for weight in model.net.parameters():
            weight.zero_()
    metrics = learner(model).update({"p": experience()}, 0)["p"].metrics
    assert metrics["entropy"] == pytest.approx(math.log(model.vocabulary), rel=0, abs=1e-4)


def test_steepness_is_the_norm_of_the_gradient_at_the_logits():
    model = tiny(scale=3.0)
    layout = lay_out(pack(rows_of(experience(), Clip(denominator="tokens")), 400))
    scores = score(model, layout, torch.float32)
    whole = model.read(
        layout.ids,
        lambda hidden, head: head(hidden.flatten(0, 1)[layout.predictor]),
        attention_mask=one_mask(model, layout.ends, torch.float32),
        position_ids=layout.positions,
    )
    logits = whole[:, : model.vocabulary].detach().requires_grad_()
    torch.log_softmax(logits, dim=-1).gather(-1, layout.targets[:, None]).sum().backward()
    assert logits.grad is not None
    assert scores.steepness.tolist() == pytest.approx(logits.grad.norm(dim=-1).tolist(), rel=1e-4, abs=1e-6)


def test_each_role_has_its_own_part_of_an_update():
    """Two roles of one policy: twice the advantage at twice the group's weight pulls four times as hard."""
    model = tiny(scale=3.0)
    graded = [
        Graded(replace(sample([9, 9], [5, 6, END]), role=role), size * sign, size, role)
        for role, size in (("a", 1.0), ("b", 2.0))
        for sign in (1, -1)
    ]
    rows = [row for row in rows_of(graded, Clip(denominator="tokens")) if row.role == "a"]
    steepness = score(model, lay_out(pack(rows, 99)), torch.float32).steepness
    learned = learner(model, PolicyGradient()).update({"p": graded}, 0)["p"]
    assert set(learned.roles) == {"a", "b"}
    assert learned.roles["a"].gradient == pytest.approx(rows[0].token_weight * float(steepness.sum()), rel=1e-4)
    assert learned.roles["b"].gradient == pytest.approx(4 * learned.roles["a"].gradient, rel=1e-4)
    assert learned.roles["a"].entropy == pytest.approx(learned.metrics["entropy"], rel=1e-4)
    line = update_metrics({"p": graded}, {"p": learned})
    assert (line["role/a/gradient_share"], line["role/b/gradient_share"]) == pytest.approx((0.2, 0.8), rel=1e-4)
    assert (line["role/a/advantage_share"], line["role/b/advantage_share"]) == pytest.approx((0.2, 0.8))


def row(prompt, completion: int = 1) -> Row:
    return Row(tuple(prompt), (7,) * completion, (-1.0,) * completion, 1.0, 1.0, 1.0, "g")


def test_a_pack_shares_what_its_prompts_begin_with_but_the_last_token():
    assert [(one.shared, one.tokens) for one in pack([row([1, 2, 3, 4])], 99)] == [(3, 4)]
    assert [one.shared for one in pack([row([1, 2, 3, 4]), row([1, 2, 3, 4], 2)], 99)] == [3]
    assert [one.shared for one in pack([row([1, 2, 3, 4]), row([1, 2, 3, 4, 5, 6])], 99)] == [3]
    assert [one.shared for one in pack([row([1, 2, 3, 4, 5]), row([1, 2, 3, 9, 5, 6])], 99)] == [3]


def test_a_row_joins_when_half_of_its_prompt_is_shared():
    assert len(pack([row([1, 2, 3, 4]), row([1, 2, 9, 9])], 99)) == 1
    assert len(pack([row([1, 2, 3, 4, 5]), row([1, 2, 9, 9, 9])], 99)) == 2


# shared 3, rests of 1 token each, for replies of one are not computed: 3 + 1 + 1 = 5
def test_a_row_joins_as_long_as_the_layout_stays_within_its_limit():
    rows = [row([1, 2, 3, 4]), row([1, 2, 3, 5])]
    assert [one.tokens for one in pack(rows, 5)] == [5]
    assert len(pack(rows, 4)) == 2


# shared 4; by parts 4 + 2 + 2 + 2 = 10 tokens, under a mask the second prompt's 5 is not computed again: 4 + 2 + 1 + 2
def test_under_a_mask_a_pack_is_as_long_as_what_it_computes():
    rows = [row([1, 2, 3, 4, 5, 6]), row([1, 2, 3, 4, 5, 7]), row([1, 2, 3, 4, 8, 9])]
    assert [(one.shared, one.tokens, one.fewest) for one in pack(rows, 9)] == [(4, 10, 9)]
    assert [len(one.rows) for one in pack(rows, 9, lambda _: True)] == [2, 1]
    assert [len(one.rows) for one in pack(rows, 8)] == [2, 1]


# three rows share 9 of 10 (9 + 3 = 12 tokens); a fourth (10) that shares s makes s + 4 (10 - s) = 40 - 3 s
def test_a_row_does_not_join_where_the_pack_would_grow_by_more_than_the_row():
    rows = [row([*range(9), 90 + number]) for number in range(3)]
    more, less = [0, 1, 2, 3, 4, 5, 90, 90, 90, 90], [0, 1, 2, 3, 4, 90, 90, 90, 90, 90]
    assert len(pack([*rows, row(more)], 99, lambda _: True)) == 1  # s = 6: 22, as much as apart
    assert len(pack([*rows, row(less)], 99, lambda _: True)) == 2  # s = 5: 25
    assert len(pack([*rows, row(less)], 99)) == 1  # under a mask, 12 + 5


def test_micro_batches_stay_within_their_budget_and_hold_packs_of_like_length():
    def lengths(budget: int, *tokens: int) -> list[list[int]]:
        packs = [pack([row([9] * count)], 99)[0] for count in tokens]
        return [[one.tokens for one in batch] for batch in microbatches(packs, budget)]

    assert lengths(20, 10, 10) == [[10, 10]]
    assert lengths(19, 10, 10) == [[10], [10]]
    assert lengths(30, 10, 10, 10) == [[10, 10, 10]]
    assert lengths(99, 8, 10) == [[8, 10]]  # padded by a quarter
    assert lengths(99, 8, 11) == [[8], [11]]
    assert lengths(99, 8, 12) == [[8], [12]]
    assert lengths(99, 8, 11, 13) == [[8], [11, 13]]  # by a quarter of the shortest beside it


# two rows of a prompt of 3 and a reply of 3: 2 tokens are shared, 1 + 2 are each one's own; 8 in a line, 5 the longest
def test_packs_by_parts_are_in_a_line_together_and_never_beside_those_under_a_mask():
    packs, alone = [pack([row([first, 2, 3], 3)] * 2, 99)[0] for first in (1, 4, 5)], pack([row([9] * 5)], 99)
    assert [(one.tokens, one.longest) for one in packs] == [(8, 5)] * 3
    batches = microbatches([*packs, *alone], 16, lambda one: one in packs)
    assert [[one.tokens for one in batch] for batch in batches] == [[5], [8, 8], [8]]
    assert [len(batch) for batch in microbatches(packs, 24, lambda _: True)] == [3]
    growing = [pack([row([9, 2, 3], count)] * 2, 99)[0] for count in (6, 8, 10)]  # longest 8, 10, 12: 12 > 8 * 5 / 4
    assert [[one.longest for one in batch] for batch in microbatches(growing, 999, lambda _: True)] == [[8, 10], [12]]


def test_packs_by_parts_whose_rows_have_prompts_of_their_own_have_the_gradient_of_plain_forwards(monkeypatch):
    """The last layer is asked from the end of what is shared, before the first token that predicts a trained one."""
    monkeypatch.setattr(attention, "ROW", -(1 << 40))
    prompts = [(*range(100, 130), *range(10 + 10 * at, 14 + 11 * at)) for at in range(3)]
    rows = [Row(prompt, (8, 9, END), (-1.0,) * 3, 1.0 + at, 1.0, 1.0, "g") for at, prompt in enumerate(prompts)]
    for lean in (True, False):
        trainer = learner(replace(tiny(scale=3.0), lean=lean), Clip())
        model = trainer.trainees["p"].model
        (batch,) = trainer.microbatches("p", rows)
        assert (way_of(model, batch), batch[0].shared) == ("parts", 30)
        assert relative(gradient(trainer, rows), reference_gradient(model, rows, trainer.loss)) < 1e-5


def test_each_policy_is_moved_by_its_own_settings():
    rates = {"p": 1e-3, "q": 4e-3}
    graded = {name: [replace(one, sample=replace(one.sample, policy=name)) for one in experience()] for name in rates}
    models = {name: tiny() for name in rates}
    both = {name: policies({name: models[name]}, lr=lr)[name] for name, lr in rates.items()}
    learned = LocalLearner(both, Clip(), 10).update(graded, 0)
    assert {name: one.metrics["lr"] for name, one in learned.items()} == rates
    for name, lr in rates.items():
        alone = tiny()
        LocalLearner(policies({name: alone}, lr=lr), Clip(), 10).update({name: graded[name]}, 0)
        mine = models[name].net.state_dict()
        assert all(torch.equal(value, mine[key]) for key, value in alone.net.state_dict().items())


def test_a_reply_without_advantage_is_trained_where_its_length_is_charged():
    graded = [replace(one, advantage=0.0) for one in experience()]
    assert rows_of(graded, Clip()) == []
    charged = rows_of(graded, Clip(overlong_from=0, overlong_buffer=1))
    assert [row.advantage for row in charged] == [-1.0] * len(graded)


@pytest.mark.parametrize("odd", [-1, 10**7])
def test_a_token_that_the_policy_does_not_have_is_one_line_and_nothing_moves(odd):
    model = tiny()
    before = copy.deepcopy(model.net.state_dict())
    learner = LocalLearner(policies({"p": model}), PolicyGradient(), 4)
    wrong = Graded(sample([5, 6], [7, odd, END]), 1.0, 1.0, "wrong")
    with pytest.raises(EngineError, match=f"the engine gave token {odd}, and policy 'p' has tokens 0 to "):
        learner.update({"p": [*experience(), wrong]}, 0)
    assert all(torch.equal(weight, before[name]) for name, weight in model.net.state_dict().items())


def test_each_policys_gradient_is_cut_at_its_own_norm():
    chosen = {"x": OptimizerConfig(clip_norm=1e9, lr=1e-9), "y": OptimizerConfig(clip_norm=1e-12, lr=1e-9)}
    both = {name: Policy(name, tiny(), optimizer=config) for name, config in chosen.items()}
    seen = {name: float("nan") for name in both}
    trainer = LocalLearner(both, PolicyGradient(), 3)
    for name, trainee in trainer.trainees.items():
        weights = list(trainee.model.net.parameters())

        def look(*_: object, name: str = name, weights: list[torch.Tensor] = weights) -> None:
            seen[name] = float(torch.cat([one.grad.flatten() for one in weights if one.grad is not None]).norm())

        trainee.optimizer.register_step_pre_hook(look)
    graded = {name: [replace(one, sample=replace(one.sample, policy=name)) for one in experience()] for name in both}
    trainer.update(graded, 0)
    assert seen["x"] > 1e-3
    assert seen["y"] < 1e-11


def equal_replies(*advantages: float, apart: float = 0.0) -> list[Graded]:
    """Replies to one prompt that say the same, one an advantage, and another that does not; likely and less likely."""
    same = [sample([5, 6, 7], [9, 11, END], [-5.0 + apart * number, -6.0, -4.0]) for number in range(len(advantages))]
    given = [Graded(one, advantage, 0.5 + number, f"g{number % 2}") for number, (one, advantage) in
             enumerate(zip(same, advantages, strict=True))]  # fmt: skip
    return [*given, Graded(sample([5, 6, 7], [9, 12, END], [-5.0, -7.0, -4.0]), 0.7, 1.0, "g2")]


# weights 0.5, 1.5, 2.5 of N = 12 tokens; above: (0.5 x 1 + 2.5 x 3) / 3 = 2.667; below: -2
def test_equal_replies_are_a_row_for_each_sign_by_hand():
    rows = merged(rows_of(equal_replies(1.0, -2.0, 3.0), Clip()))
    assert [(row.copies, row.advantage, row.token_weight * 12) for row in rows] == [
        (2, pytest.approx(8 / 3), pytest.approx(3.0)), (1, -2.0, pytest.approx(1.5)), (1, 0.7, pytest.approx(1.0)),
    ]  # fmt: skip
    near = merged(rows_of(equal_replies(1.0, 2.0, apart=5e-5), Clip()))
    assert [row.copies for row in near] == [2, 1]
    # (0.5 x 1 x -5 + 1.5 x 2 x -4.99995) / 3.5
    assert near[0].rollout_logprobs == pytest.approx((-5 + 5e-5 * 3 / 3.5, -6.0, -4.0), abs=1e-9)
    idle = merged(rows_of(equal_replies(0.0, 0.0, apart=5e-5), Clip(kl=0.3)))
    assert idle[0].rollout_logprobs == pytest.approx((-5 + 5e-5 * 1.5 / 2, -6.0, -4.0), abs=1e-9)
    (mute,) = merged([replace(near[0], token_weight=0.0, copies=1)] * 2)
    assert (mute.copies, mute.token_weight, mute.rollout_logprobs) == (2, 0.0, near[0].rollout_logprobs)
    warmer = equal_replies(1.0, 2.0)
    warmer[0] = replace(warmer[0], sample=replace(warmer[0].sample, temperature=0.5))
    assert [row.copies for row in merged(rows_of(warmer, Clip()))] == [1, 1, 1]
    assert [row.copies for row in merged(rows_of(equal_replies(1.0, 2.0, apart=0.01), Clip()))] == [1, 1, 1]
    roles = [replace(one, sample=replace(one.sample, role=role)) for role, one in
             zip("aba", equal_replies(1.0, 2.0), strict=True)]  # fmt: skip
    assert [row.copies for row in merged(rows_of(roles, Clip()))] == [1, 1, 1]


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize(
    "loss",
    [
        Clip(kl=0.3), Clip(epsilon=0.05, epsilon_high=0.1), GSPO(epsilon=0.05, epsilon_high=0.1),
        PolicyGradient(denominator="tasks"), Clip(correction="token_truncate"),
        Clip(correction="sequence_mask", kl=0.1),
    ],
)  # fmt: skip
def test_equal_replies_trained_once_move_weights_as_if_each_were(loss, updates, monkeypatch):
    assert merges(loss)
    graded = equal_replies(1.0, -2.0, 3.0, -0.5, 0.0)
    graded += [replace(one, group=f"h{one.group}", advantage=-0.3 * one.advantage) for one in graded]
    found = []
    for once in (True, False):
        monkeypatch.setattr(learner_module, "merges", lambda _, once=once: once)
        model = copy.deepcopy(tiny(scale=3.0))
        trainer = learner(model, loss, updates_per_step=updates, lr=1e-2)
        with torch.no_grad():
            for weight in model.net.parameters():
                weight.add_(0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(5)))
        learned = trainer.update({"p": graded}, 0)["p"]
        found.append((torch.cat([weight.detach().flatten() for weight in model.net.parameters()]), learned))
    (mine, ours), (theirs, each) = found
    start = torch.cat([weight.detach().flatten() for weight in tiny(scale=3.0).net.parameters()])
    assert float((mine - theirs).norm() / (theirs - start).norm()) < 1e-3  # Adam divides what is nearly nothing
    assert ours.metrics["grad_norm"] == pytest.approx(each.metrics["grad_norm"], rel=1e-5)
    assert ours.metrics.keys() == each.metrics.keys()
    for name, value in each.metrics.items():
        assert ours.metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    assert ours.roles["a"].entropy == pytest.approx(each.roles["a"].entropy, rel=1e-5)
    if not loss.kl:
        assert ours.roles["a"].gradient == pytest.approx(each.roles["a"].gradient, rel=1e-4)


@pytest.mark.parametrize("advantages", [(0.02, 2.0), (0.02, 0.02, 2.0), (-2.0, -0.02)])
def test_replies_that_are_equal_but_for_rounding_have_the_gradient_of_each(advantages):
    """9.9e-5 nats apart, the most that is taken for rounding, so that a plain mean would be 5e-5 off."""
    rows = rows_of(equal_replies(*advantages, apart=9.9e-5 / (len(advantages) - 1)), PolicyGradient())
    trainer = learner(loss=Clip())
    found: list[torch.Tensor] = []
    for some in (rows[:-1], merged(rows[:-1])):
        trainer.trainees["p"].policy.model.net.zero_grad()
        trainer.accumulate("p", some)
        found.append(
            torch.cat([weight.grad.flatten() for weight in trainer.trainees["p"].policy.model.net.parameters()])
        )
    assert len(merged(rows[:-1])) == 1
    assert float((found[0] - found[1]).norm() / found[0].norm()) < 1e-6


def test_a_loss_that_does_not_add_up_trains_each_reply_alone():
    class Squares(Clip):
        def tokens(self, batch):
            return super().tokens(batch) * batch.advantages.abs()

    class Scaled(Clip):
        def tokens(self, batch):
            return super().tokens(batch) / batch.advantages.std()

    class Broken(Clip):
        def tokens(self, batch):
            raise RuntimeError

    class Nearly(Clip):
        def tokens(self, batch):
            return super().tokens(batch) * (1 + 1e-5 * batch.advantages.abs())

    kinds = (Clip, Squares, Scaled, Broken, Nearly)
    assert [merges(kind()) for kind in kinds] == [True, False, False, False, False]
    graded = equal_replies(1.0, 3.0)
    for kind, rows in ((Clip, 2), (Squares, 3)):
        assert len(learner(loss=kind())._rows("p", graded, 0)[0]) == rows


def test_packs_by_parts_are_computed_in_bfloat16_too(monkeypatch):
    """By autocast, under which queries, keys and values come in two types."""
    rows = rows_of(experience(groups=1, size=5, prompt=40), Clip())
    exact = gradient(learner(tiny(scale=3.0)), rows)
    monkeypatch.setattr(attention, "ROW", -(1 << 40))
    trainer = learner(tiny(scale=3.0))
    trainer.trainees["p"].policy.dtype, trainer.trainees["p"].lean = torch.bfloat16, None
    assert {way_of(trainer.trainees["p"].model, batch) for batch in trainer.microbatches("p", rows)} == {"parts"}
    assert relative(gradient(trainer, rows), exact) < 0.05


@pytest.mark.parametrize("lean", [True, False])
def test_rows_without_a_mask_and_packs_by_parts_have_the_gradient_of_plain_forwards(lean, monkeypatch):
    """All ways of attention, chosen by what they would cost; a network that was told otherwise takes none of them."""
    rows = rows_of(experience(groups=2, size=5, prompt=40), Clip())
    alone_rows = rows_of(experience(groups=4, size=1, prompt=40), Clip())
    for some in (rows, alone_rows):
        for row in (-(1 << 40), 1 << 40):
            monkeypatch.setattr(attention, "ROW", row)
            trainer = learner(replace(tiny(scale=3.0), lean=lean))
            model = trainer.trainees["p"].model
            way = "causal" if some is alone_rows else "masks" if row > 0 else "parts"
            assert {way_of(model, batch) for batch in trainer.microbatches("p", some)} == {way}
            assert relative(gradient(trainer, some), reference_gradient(model, some, trainer.loss)) < 1e-5
    model = replace(tiny(scale=3.0), lean=lean)
    expected = reference_gradient(model, alone_rows, Clip())
    model.net.set_attn_implementation("eager")
    assert {way_of(model, batch) for batch in learner(model).microbatches("p", alone_rows)} == {"masks"}
    assert relative(gradient(learner(model), alone_rows), expected) < 1e-5
