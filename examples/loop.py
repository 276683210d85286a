"""The training loop written out: AT-GRPO on a team, five stages a step, in plain torch.

    python examples/loop.py plan_path 10

A step plays tasks, compares replies to the same prompt, routes each reply to the policy that wrote it, moves every
policy's weights, and hands them to the engine that samples. `coterie train` does the same. Around it a run has
validation, checkpoints that resume bit for bit, metrics, rows packed into micro-batches, other losses and algorithms,
and several processes. A test holds that both move the weights alike (tests/run/test_loop.py).
"""

import sys
from collections.abc import Iterator
from statistics import fmean, stdev

import torch

from coterie import Sample, load_config
from coterie.kernel.group import Group
from coterie.kernel.loops import drive
from coterie.kernel.play import Play
from coterie.learning.optimizer import learning_rate
from coterie.models.load import Model
from coterie.run.rollout import step_tasks
from coterie.run.weights import TeamModels

EPSILON = 0.2
Credited = dict[str, list[tuple[Sample, float]]]
"""By policy: each sampled reply with its advantage."""


def train(target: str, steps: int, *overrides: str) -> Iterator[TeamModels]:
    """Trains the team of a config or an environment, and yields its models after every step."""
    config = load_config(target, [f"train.steps={steps}", *overrides])
    if config.names["algorithm"] != "at_grpo" or config.loss.kl:
        raise SystemExit("this loop is at_grpo with its own loss; add --set algorithm.name=at_grpo, or use coterie train")
    with TeamModels(config) as models:
        trained = models.trained
        optimizers = {
            name: torch.optim.AdamW(
                policy.model.trained, betas=policy.optimizer.betas, eps=policy.optimizer.eps, weight_decay=0.0
            )
            for name, policy in trained.items()
        }
        for step in range(steps):
            groups = play(models, step)
            for name, replies in route(groups).items():
                settings, optimizer = trained[name].optimizer, optimizers[name]
                optimizer.param_groups[0]["lr"] = learning_rate(settings, step, steps)
                learn(trained[name].model, replies, optimizer, settings.clip_norm)
            models.sync(step + 1)  # the engine samples from the new weights now
            yield models
            print(
                f"step {step + 1}: reward of a reply {fmean(value for group in groups for value in group.values):+.3f}"
            )


def play(models: TeamModels, step: int) -> list[Group]:
    """Returns the groups of a step: K replies to one prompt of one role each, with what every reply has earned.

    Every task is one episode. At each of its decision points the algorithm draws K replies, plays each on until its
    horizon closes, and goes on with the best (src/coterie/sampling/tree.py).
    """
    config = models.config
    game = Play(
        config.environment, config.team, models.engine, seed=config.train.seed, step=step, sampling=config.sampling()
    )

    async def collect():
        tasks = [game.task("train", index) for index in step_tasks(config, step)]
        return await game.together(*(config.algorithm.collect(game, task) for task in tasks))

    return [group for task in drive(collect()) for group in task.groups]


def advantages(group: Group) -> list[float]:
    """Returns how much better than the group's mean each reply was, in standard deviations; 0 if all were equal."""
    mean, spread = fmean(group.values), stdev(group.values)
    return [(value - mean) / (spread + 1e-6) for value in group.values]


def route(groups: list[Group]) -> Credited:
    """Returns each policy's replies. Roles that share a policy train it together; a frozen policy gets none."""
    credited: Credited = {}
    for group in groups:
        for member, advantage in zip(group.members, advantages(group), strict=True):
            for sample in member.samples:
                credited.setdefault(sample.policy, []).append((sample, advantage))
    return credited


def learn(
    model: Model, replies: list[tuple[Sample, float]], optimizer: torch.optim.Optimizer, clip_norm: float
) -> None:
    """Takes one optimizer step on the clipped loss, a mean over all sampled tokens of the policy."""
    tokens = sum(len(sample.completion_ids) for sample, _ in replies)
    for sample, advantage in replies:
        if advantage:
            old = torch.tensor(sample.logprobs, device=model.device)
            ratio = (logprobs(model, sample) - old).exp()
            clipped = ratio.clamp(1 - EPSILON, 1 + EPSILON)
            loss = -torch.minimum(ratio * advantage, clipped * advantage).sum() / tokens
            loss.backward()
    torch.nn.utils.clip_grad_norm_(model.trained, clip_norm)
    optimizer.step()
    optimizer.zero_grad()


def logprobs(model: Model, sample: Sample) -> torch.Tensor:
    """Returns the log-probability of each token of a reply, (N,), at the temperature that sampled it."""
    ids = torch.tensor([[*sample.prompt_ids, *sample.completion_ids]], device=model.device)
    logits = model.net(ids).logits[0, len(sample.prompt_ids) - 1 : -1, : model.vocabulary]
    reply = torch.tensor(sample.completion_ids, device=model.device)
    return (logits / sample.temperature).log_softmax(-1).gather(1, reply[:, None])[:, 0]


if __name__ == "__main__":
    for _ in train(sys.argv[1], int(sys.argv[2])):
        pass
