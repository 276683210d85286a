"""The simulation of a run's stages, against what is counted by hand."""

import pytest

from benchmarks.scaling import Simulated, Stages


@pytest.mark.parametrize(
    ("ahead", "update", "step"),
    [
        (0, 1.0, 4.75),  # 3 waves of 1 s, update 1, driving 0.25, new weights 0.5: one after another
        (1, 5.0, 5.75),  # the learner never waits: update, driving, weights, for which idle engines have time
        (4, 5.0, 5.75),  # and further ahead is no faster
    ],
)
def test_a_step_of_one_pool(ahead, update, step):
    stages = Stages([(0, 1.0)] * 3, update=update, drive=0.25, sync=0.5)
    assert Simulated(stages, ahead).step_s == pytest.approx(step)


def test_new_weights_wait_for_the_wave_under_way():
    """The update of 1 s ends in the next rollout's wave of 4 s, after which weights are taken: 4 s and 0.5 a step."""
    assert Simulated(Stages([(0, 4.0)], update=1.0, drive=0.0, sync=0.5), 1).step_s == pytest.approx(4.5)


def test_roles_that_speak_in_turns_have_their_pools_wait_for_each_other():
    stages = Stages([(0, 1.0), (1, 1.0)], update=0.0, drive=0.0, sync=0.0)
    assert Simulated(stages, 0).step_s == pytest.approx(2.0)
