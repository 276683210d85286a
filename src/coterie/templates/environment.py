"""NewEnvironment: a caller sees digits and says them sorted; a clerk sees only this reply and writes it down."""

from random import Random

from coterie import Environment, Scene, Task, split_of


class NewEnvironment(Environment):
    """A caller sees digits and says them sorted; a clerk writes them down."""

    roles = ("caller", "clerk")
    digits: int = 4
    """Number of digits."""

    def task(self, split, index):
        """The digits of one task, drawn until they belong to its split: splits never overlap."""
        rng = Random(f"{split} {index}")
        while split_of(seen := " ".join(str(rng.randrange(10)) for _ in range(self.digits))) != split:
            pass
        return Task(f"{split}-{index}", split, query=seen)

    async def play(self, task: Task, scene: Scene):
        """One episode: its prompts, its rewards and its outcome."""
        wanted = " ".join(sorted(task.query.split()))
        said = await scene.ask("caller", f"sort {task.query}", max_tokens=12)
        scene.reward("caller", right_places(said.text, wanted))
        written = await scene.ask("clerk", f"write {said.text[:20]}", max_tokens=12)
        scene.reward("clerk", right_places(written.text, wanted))
        scene.team_reward(float(written.text.strip() == wanted))
        return scene.succeed() if written.text.strip() == wanted else scene.fail("not in order")

    def demonstrate(self, role, task, prompt, rng):
        """Returns what a small model imitates before it is trained by rewards: a caller that sorts half of the time."""
        digits = str(prompt).split()[1:]
        return " ".join(sorted(digits) if role == "caller" and rng.random() < 0.5 else digits)


def right_places(text: str, wanted: str) -> float:
    """The share of correct positions. Every text gets a score, and none raises an exception."""
    said, sought = text.split(), wanted.split()
    return sum(a == b for a, b in zip(said, sought, strict=False)) / max(len(said), len(sought))
