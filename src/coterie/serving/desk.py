"""The models of the endpoint: each role of a trained team, and the whole team if its environment implements `asked`."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from coterie.errors import ConfigError, Unavailable, first_line
from coterie.kernel.engine import Engine, Request
from coterie.kernel.environment import Environment
from coterie.kernel.episode import LoggedPrompt
from coterie.kernel.front import Front, Samples
from coterie.kernel.play import Play
from coterie.learning.policy import Policy
from coterie.protocol.chat import FINISH, Chat, RequestRefused, Said
from coterie.run.loaded import Loaded
from coterie.seeds import seed_of

TEAM = "team"
"""Name of the model that is the whole team; `team.ROLE` is one role of it."""
CHARACTERS = 16
"""Maximum characters of a token: a longer text is refused before its tokens are counted, which takes seconds."""
LONGEST_QUESTION = 100_000
"""Maximum characters of a question to the team, whose prompts are made where all requests are answered."""
LONG = 4_000
"""Number of characters above which a prompt is made in a thread, so that nobody else waits for it."""
MESSAGE = 16
"""Number of characters that a message counts beside its text: its role has tokens too."""


class Batches(Front):
    """A front that takes to the engine, whenever it is free, all requests that came for a policy meanwhile."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._queues: dict[str, deque[tuple[Request, asyncio.Future[Samples | Unavailable]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def _answers(self, requests: tuple[Request, ...]) -> list[Samples | Unavailable]:
        return list(await asyncio.gather(*map(self._answer, requests)))

    async def _answer(self, request: Request) -> Samples | Unavailable:
        future: asyncio.Future[Samples | Unavailable] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(request.policy)
        if queue is None:
            queue = self._queues[request.policy] = deque()
            task = asyncio.create_task(self._serve(request.policy))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        queue.append((request, future))
        return await future

    async def _serve(self, policy: str) -> None:
        queue = self._queues[policy]
        waiting: list[tuple[Request, asyncio.Future[Samples | Unavailable]]] = []
        try:
            while queue:
                waiting = [queue.popleft() for _ in range(len(queue))]
                waiting = [(request, future) for request, future in waiting if not future.done()]  # who has left
                answers = await self._answered([request for request, _ in waiting])
                for request, future in waiting:
                    if not future.done():
                        future.set_result(answers[request.key])
        except BaseException as error:  # raised in everybody who waits; nobody waits for this task
            for _, future in [*waiting, *queue]:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            del self._queues[policy]


class Desk:
    """Answers to chats with a trained team; greedy, as it is evaluated, unless a client says otherwise."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._engine = loaded.models.engine
        self._front = Batches(self._engine)
        self._numbers = itertools.count()
        self._aside = ThreadPoolExecutor(1)
        self._twins: dict[str, Policy] = {}
        self.models: dict[str, Callable[[Chat, int], Awaitable[Said]]] = {}
        if asks(loaded):
            self.models[TEAM] = self._team
        self.models |= {f"{TEAM}.{role}": self._role for role in loaded.config.team.roles}

    def known(self, name: str) -> str:
        """Returns a model's name. Raises: Refused: there is no such model."""
        if name not in self.models:
            there = ", ".join(self.models)
            raise RequestRefused(
                f"no model '{name:.80}'; there are {there}", status=404, code="model_not_found", param="model"
            )
        return name

    async def answer(self, chat: Chat) -> Said:
        """Returns the answer of the model that a chat is for.

        Raises:
            Refused: there is no such model, it cannot answer this, or its engine cannot just now.
        """
        try:
            return await self.models[self.known(chat.model)](chat, next(self._numbers))
        except Unavailable as fault:
            raise RequestRefused("the engine does not answer just now; try again", status=503, code="engine") from fault

    async def _role(self, chat: Chat, number: int) -> Said:
        """Returns one reply of a role."""
        config = self._loaded.config
        role = chat.model.removeprefix(f"{TEAM}.")
        policy = config.team.roles[role]
        check_length(chat, CHARACTERS * self._engine.context(policy))
        ids = await self._rendered(policy, role, chat)
        room = self._engine.context(policy) - len(ids)
        if room < 1:
            raise RequestRefused(
                f"the messages have {len(ids)} tokens and the context is {self._engine.context(policy)}: shorten them",
                code="context_length_exceeded", param="messages",
            )  # fmt: skip
        seed = seed_of("served", config.train.seed, number if chat.seed is None else ("asked", chat.seed))
        (samples,) = await self._front.ask((
            Request(
                key=("served", number, "", role),
                policy=policy,
                role=role,
                prompt=chat.prompt,
                prompt_ids=ids,
                seeds=(seed,),
                temperature=chat.temperature or 0.0,
                top_p=1.0 if chat.top_p is None else chat.top_p,
                max_tokens=min(chat.max_tokens or config.engine.max_tokens, room),
                stop=chat.stop,
            ),
        ))  # fmt: skip
        (sample,) = samples
        return Said(sample.text, FINISH[sample.finish], len(ids), len(sample.completion_ids))

    async def _rendered(self, policy: str, role: str, chat: Chat) -> tuple[int, ...]:
        """Returns the ids of a prompt; those of a long one are made in a thread, with a tokenizer of its own."""
        local = self._loaded.models.policies
        if length(chat) <= LONG or policy not in local:
            return self._engine.render(policy, role, chat.prompt)
        twin = self._twins.setdefault(policy, replace(local[policy], _renderer=None))
        return await asyncio.get_running_loop().run_in_executor(self._aside, twin.render, chat.prompt, role)

    async def _team(self, chat: Chat, number: int) -> Said:
        """Plays one episode of the team about a person's question, and returns its answer."""
        check_length(chat, LONGEST_QUESTION)
        said = {"stop": chat.stop, "max_tokens": chat.max_tokens, "seed": chat.seed}
        for key in (key for key, value in said.items() if value not in (None, ())):
            raise RequestRefused(
                f"'{key}' has no effect on a team, which plays by its environment; leave it away", param=key
            )
        loaded, config = self._loaded, self._loaded.config
        sampling = config.sampling(chat.temperature or 0.0, 1.0 if chat.top_p is None else chat.top_p)
        try:
            task = replace(config.environment.asked(question(chat.prompt)), id=f"asked-{number}")
        except ValueError as error:  # what it says of the question
            raise RequestRefused(first_line(error), param="messages") from error
        play = Play(
            config.environment, config.team, self._engine,
            seed=config.train.seed, sampling=sampling, recall=loaded.recall, trial=True, front=self._front,
        )  # fmt: skip
        cursor = play.start(task)
        try:
            drawn = await play.run(cursor)
        except ConfigError as error:  # the first prompt of the episode does not fit
            raise RequestRefused(
                "the question is too long", code="context_length_exceeded", param="messages"
            ) from error
        samples = [each.sample for each in drawn]
        cut = any(sample.finish == "length" for sample in samples[-1:])
        return Said(
            config.environment.answer(task, cursor.log),
            "length" if cut else "stop",
            sum(len(sample.prompt_ids) for sample in samples),
            sum(len(sample.completion_ids) for sample in samples),
        )


def length(chat: Chat) -> int:
    """Returns the number of characters of a chat's messages."""
    return sum(len(turn.text) + MESSAGE for turn in chat.turns)


def check_length(chat: Chat, most: int) -> None:
    """Raises Refused if a chat's messages have more than so many characters."""
    if (there := length(chat)) > most:
        raise RequestRefused(
            f"the messages have {there:,} characters, and {most:,} are read: shorten them",
            code="context_length_exceeded", param="messages",
        )  # fmt: skip


def asks(loaded: Loaded) -> bool:
    """Returns True if the environment can be asked in words."""
    return type(loaded.config.environment).asked is not Environment.asked


def question(prompt: LoggedPrompt) -> str:
    """Returns the question that a person asks the team: the one message.

    Raises:
        Refused: there are several; a team answers a question, it does not chat.
    """
    if isinstance(prompt, str) or [message.role for message in prompt] != ["user"]:
        raise RequestRefused("a team answers one question: send one message of the user", param="messages")
    return str(prompt[0].content)
