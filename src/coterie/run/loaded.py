"""The functions `load` and `evaluate` of the Python API. `train` is in `train.py`."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coterie import ram
from coterie.checks.rehearsal import rehearse
from coterie.config.settings import Config
from coterie.errors import CheckpointError, ConfigError
from coterie.kernel.cursor import Cursor
from coterie.kernel.environment import Split
from coterie.kernel.episode import Log, Sample
from coterie.kernel.loops import Hosted, drive
from coterie.kernel.mistakes import check_index, check_split, count_of
from coterie.kernel.play import Play, Seats
from coterie.kernel.team import Team
from coterie.learning.forward import logprobs_of
from coterie.learning.policy import Policy
from coterie.memory.recall import Recall
from coterie.memory.store import Mode
from coterie.run.ablation import BASE, Ablation, Change
from coterie.run.evaluate import Evaluation, evaluate_team
from coterie.run.exactness import exactness
from coterie.run.folder import Run
from coterie.run.past import whose
from coterie.run.policies import pinned
from coterie.run.precision import precise
from coterie.run.records import Progress
from coterie.run.signal import SECONDS, TASKS, Signal, Speaker, measure_signal
from coterie.run.weights import TeamModels


class Loaded:
    """A team that can play: a run's at one of its checkpoints, or that of a config, before any training.

    Args:
        source: the run, or the config.
        step: the step of the run's checkpoint; None: the best by validation.

    Raises:
        CheckpointError: no run, no such checkpoint, or a damaged one.
        ConfigError: a model or device of the config is not there, or a step was named for it.
    """

    def __init__(self, source: Run | Config, step: int | None = None) -> None:
        self.run = source if isinstance(source, Run) else None
        self.config: Config
        if isinstance(source, Config):
            if step is not None:
                raise ConfigError(f"step {step}: a config has no checkpoints; name the run that was trained with it")
            rehearse(source.environment, play_timeout_s=source.engine.play_timeout_s)
            self.config, self.progress = precise(pinned(source, keep=False)), Progress(pending=None)
            self.models = TeamModels(self.config)
        else:
            self.config = source.config
            with source.checkpoints.reading("best" if step is None else step) as (folder, self.progress):
                self.models = TeamModels(self.config, folder, folder=source.folder)
        weakref.finalize(self, self.models.engine.shut)
        self.remember(self.config.memory.mode)

    def __repr__(self) -> str:
        return f"<the team of {self.name} at step {self.progress.step}>"

    @property
    def name(self) -> str:
        """Name of the team: the folder of its run, or that of its environment if there is no run."""
        return str(self.run.folder) if self.run else self.config.names["environment"]

    @property
    def changed(self) -> bool:
        """True if the environment's files are no longer those that the run was trained in."""
        with suppress(CheckpointError):  # about.json is missing, so it is not known
            return self.run is not None and "environment" in self.run.differences(exactness(self.config))
        return False

    def close(self) -> None:
        """Releases the models. The team cannot play afterwards."""
        self.models.close()

    def logprobs(self, sample: Sample) -> list[float]:
        """Computes the log-probabilities of a sampled reply with this checkpoint's weights of its policy.

        Returns:
            the log-probability of each token in nats, at the sampling temperature of the reply (1 if it is greedy), and
            without top_p.

        Raises:
            ConfigError: a server plays the policy, so its weights are not available.
        """
        policy = self.models.policies.get(sample.policy)
        if policy is None:
            raise ConfigError(f"policy '{sample.policy}' is played by a server, which has its weights")
        return logprobs_of(policy, sample)

    def remember(self, mode: Mode) -> None:
        """Sets whether later episodes use the run's memory, no memory, or the placebo.

        Raises:
            ConfigError: the run remembers nothing.
        """
        if mode != "off" and self.config.memory.mode == "off":
            raise ConfigError(f"{self.name} remembers nothing: it was trained with memory.mode = 'off'")
        config = self.config.memory.model_copy(update={"mode": mode})
        self.recall = None if mode == "off" else Recall(self.progress.memory, config)

    def use(self, data: str) -> tuple[str, ...]:
        """Replaces the test tasks by those of other data. Returns notes for the user.

        Raises:
            ConfigError: the environment plays no data, or the data cannot be read.
        """
        environment, remarks = self.config.environment.tested_on(data)
        self.config = dataclasses.replace(self.config, environment=environment)
        return remarks

    def evaluate(
        self,
        split: Split = "test",
        *,
        tasks: int | None = None,
        sampled: int = 0,
        votes: int = 1,
        progress: Callable[[int, int], None] | None = None,
    ) -> Evaluation:
        """Plays held-out tasks plainly, and returns the team's results; see `evaluate_team`."""
        return self._evaluate(self.config.team, self.models.engine, {}, split, tasks, sampled, progress, votes)

    def compare(
        self,
        ablations: Sequence[Ablation],
        split: Split = "test",
        *,
        tasks: int | None = None,
        sampled: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Evaluation, list[Change]]:
        """Returns the results of the team as it is, and the effect of each ablation on its success."""
        before, after = self.ablate(ablations, split, tasks=tasks, sampled=sampled, progress=progress)
        return before, [Change.between(*change) for change in zip(ablations, [before] * len(after), after, strict=True)]

    def ablate(
        self,
        ablations: Sequence[Ablation],
        split: Split = "test",
        *,
        tasks: int | None = None,
        sampled: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> tuple[Evaluation, list[Evaluation]]:
        """Returns the results of the team as it is, and ablated in each way, on the same tasks.

        Raises:
            ConfigError: an ablation names no role of the team, or changes nothing.
            CheckpointError: a replacement is not there.
        """
        changed: list[tuple[Team, Hosted, Seats]] = []
        others: dict[str, Hosted] = {}
        for ablation in ablations:
            if not isinstance(ablation, Ablation):
                raise ConfigError(f"{ablation!r:.80} is no ablation; write Ablation.parse('mute', 'ROLE')")
            ablation.check(self.config.team, self.config.environment.absent(split))
            team, engine = ablation.team(self.config.team), self.models.engine
            if ablation.kind == "replace":
                team, engine = self._replaced(ablation, others)
            changed.append((team, engine, ablation.seats()))
        try:
            before = self.evaluate(split, tasks=tasks, sampled=sampled, progress=progress)
            return before, [self._evaluate(*swap, split, tasks, sampled, progress) for swap in changed]
        finally:
            for engine in others.values():
                engine.shut()

    def _replaced(self, ablation: Ablation, others: dict[str, Hosted]) -> tuple[Team, Hosted]:
        """Returns the team and engine in which a role is played by its start, or by another run's policy.

        Args:
            others: engines with such a policy, by its name; roles of one policy share one.
        """
        (role,) = ablation.roles
        run = self.run if ablation.source == BASE else Run.open(Path(ablation.source))
        if run is None:
            raise ConfigError(f"--{ablation}: this team is untrained, so it is its own base; name a run's folder")
        theirs = run.config
        if role not in theirs.team.roles:
            raise ConfigError(f"--{ablation}: the team of {run.folder} has no role '{role}'")
        played = theirs.team.roles[role]
        policy = whose(played, theirs.policies[played])  # a checkpoint has that one alone
        name = f"{policy} of {ablation.source}"
        if name not in others:
            with run.checkpoints.reading(0 if ablation.source == BASE else "best") as (folder, _):
                others[name] = self.models.engine_with(name, theirs.policies[policy], folder / "policies" / policy)
        return ablation.team(self.config.team, name), others[name]

    def _evaluate(
        self,
        team: Team,
        engine: Hosted,
        seats: Seats,
        split: Split,
        tasks: int | None,
        sampled: int,
        progress: Callable[[int, int], None] | None,
        votes: int = 1,
    ) -> Evaluation:
        check_split(split)
        engine.open()
        settings, there = self.config.eval, count_of(self.config.environment, split)
        return evaluate_team(
            self.config.environment,
            team,
            engine,
            split=split,
            tasks=min(settings.tasks, there or settings.tasks) if tasks is None else tasks,
            sampled=sampled,
            sampling=self.config.sampling(settings.temperature, settings.top_p) if self.run else self.config.sampling(),
            seed=self.config.train.seed,
            seats=seats,
            recall=self.recall,
            votes=votes,
            max_dropped_share=self.config.train.max_dropped_share,
            progress=progress,
        )

    def signal(
        self,
        *,
        tasks: int = TASKS,
        seconds: float = SECONDS,
        progress: Callable[[int, int], None] | None = None,
    ) -> Signal:
        """Plays train tasks as the team's next training step would, and says what could be learned from them.

        Args:
            tasks: that are played at most.
            seconds: after which no further tasks are begun.
            progress: called with (tasks done, tasks).
        """
        self.models.engine.open()
        speakers = {name: _speaker(policy) for name, policy in self.models.trained.items()}
        return measure_signal(
            self.config, self.models.engine, tasks=tasks, seconds=seconds, step=self.progress.step, speakers=speakers,
            progress=progress,
        )  # fmt: skip

    def play(
        self,
        split: Split = "validation",
        index: int = 0,
        *,
        temperature: float = 0.0,
        seats: Seats | None = None,
    ) -> Log:
        """Plays one plain episode, and returns its log, with the prompts as roles saw them, notes included.

        Args:
            temperature: 0 is greedy.
            seats: roles that a function of the prompt plays, for example to ask a person.

        Raises:
            ConfigError: a seat is no role, or the split has no such task.
        """
        play, cursor = self.begin(split, index, temperature=temperature, seats=seats)
        drive(play.run(cursor))
        return self.recall.shown(cursor.log, cursor.task) if self.recall else cursor.log

    def begin(
        self,
        split: Split = "validation",
        index: int = 0,
        *,
        temperature: float = 0.0,
        seats: Seats | Sequence[str] | None = None,
    ) -> tuple[Play, Cursor]:
        """Returns an episode before its beginning, to be played on by whoever asks; see `play`.

        Args:
            seats: or the names of roles that somebody else answers for.
        """
        check_split(split)
        check_index(self.config.environment, split, index)
        environment, team = self.config.environment, self.config.team
        if seats:
            with suppress(ConfigError):  # a person may take the seat of a player that otherwise moves at random
                environment = environment.facing(chance=False)
                first = next(iter(team.roles.values()))
                team = Team({role: team.roles.get(role, first) for role in environment.roles})
        for role in seats or ():
            if role not in team.roles:
                raise ConfigError(f"unknown role '{role}'; the roles are {', '.join(team.roles)}")
        play = Play(
            environment,
            team,
            self.models.engine,
            seed=self.config.train.seed,
            sampling=self.config.sampling(temperature),
            seats=seats if isinstance(seats, Mapping) else None,
            recall=self.recall,
        )
        self.models.engine.open()
        return play, play.start(play.task(split, index))


@dataclass(frozen=True, slots=True)
class Headline:
    """Result of a run: plain greedy play of held-out test tasks, at its start and at its best checkpoint."""

    run: Path
    start: Evaluation
    end: Evaluation
    step: int

    def __str__(self) -> str:
        end = self.end
        return (
            f"test, {end.tasks} tasks, greedy: {self.start.success:.3f} solved at the start, {end.success:.3f} "
            f"[{end.success_low:.3f}, {end.success_high:.3f}] at step {self.step}, the best by validation"
        )


def headline(run: Run, progress: Callable[[str, int, int], None] = lambda *_: None) -> Headline:
    """Returns the main result of a run: its success on test tasks, with the settings of `[eval]`.

    Args:
        progress: is told which checkpoint plays, and how many tasks of how many it has played.
    """

    def tested(step: int | None, which: str) -> tuple[Evaluation, int]:
        with closing(load(run.folder, step)) as team:
            return team.evaluate(progress=partial(progress, which)), team.progress.step

    before, _ = tested(0, "start")  # no variable holds this team, and its model, while the next one is loaded
    after, step = tested(None, "best checkpoint")
    return Headline(run.folder, before, after, step)


def _speaker(policy: Policy) -> Speaker:
    """Returns the facts about a policy's model that its temperature depends on."""
    recommended = policy.model.net.generation_config.temperature if policy.model.net.generation_config else None
    return Speaker(policy.model.vocabulary, None if recommended in (None, 1.0) else float(recommended))


def load(run: Run | str | Path | Config, step: int | None = None) -> Loaded:
    """Loads a team: a run's from its best checkpoint or that of a given step, or a config's before any training.

    The result has the methods `evaluate`, `compare`, `ablate`, `signal` and `play`.
    """
    if isinstance(run, Loaded):
        raise ConfigError(f"{run!r} is loaded; call its own evaluate or play")
    ram.give_back(collect=True)  # a team that was let go may be as large as this one
    return Loaded(run if isinstance(run, Run | Config) else Run.open(Path(run)), step)


def evaluate(
    run: Run | str | Path | Config,
    split: Split = "test",
    *,
    step: int | None = None,
    tasks: int | None = None,
    sampled: int = 0,
    votes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Evaluates a team on held-out tasks: greedy, sampled, or by a majority vote over several replies.

    The team of a config is not trained yet. It is sampled as in training, a run's team with the settings of `[eval]`.

    Args:
        run: a run or its folder; or a config, as `load_config` gives it.
        split: train, validation or test.
        step: the step of the checkpoint; None: the best checkpoint by validation.
        tasks: number of tasks; None: `eval.tasks` of the config.
        sampled: sampled episodes per task; 0: one greedy episode.
        votes: sampled replies per prompt for the majority vote; 1: no vote.
        progress: called with (tasks done, tasks).
    """
    return load(run, step).evaluate(split, tasks=tasks, sampled=sampled, votes=votes, progress=progress)
