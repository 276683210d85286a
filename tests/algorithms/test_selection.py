"""Selection: numbers by hand, laws, and what the rules do to a gradient in expectation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from statistics import fmean, stdev, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.algorithms.credit import CREDIT
from coterie.algorithms.selection import RANKED, Choice, Rule, select, variation
from coterie.errors import GroupError
from coterie.kernel.episode import Sample
from coterie.kernel.group import Group, Key, Member
from coterie.run.metrics import selection_metrics


def made(*returns: tuple[float, ...], task="t", point=0, policy="p", replies=None, last=False, episode=0) -> Group:
    """A group of alternatives with these returns; `replies` says which are equal."""
    samples = [
        Sample(policy, policy, 0, (1, 2), (reply,), (0.0,), "stop", str(reply))
        for reply in replies or range(len(returns))
    ]
    members = tuple(Member((sample,), one) for sample, one in zip(samples, returns, strict=True))
    return Group(
        Key(task, episode, f"{episode}/{point}.{policy}@{point}", policy), "prompt", members, last=last, point=point
    )


def chosen(groups, rule: Rule, seed=0, **settings) -> list[str]:
    return [group.key.task for group in select(groups, Choice(rule, **settings), Random(seed))]


def test_variance_splits_into_signal_and_noise_by_hand():
    """Means 0.5, 1, 0: U = 0.25. Variances 0.5, 0, 0 over two each: noise = (0.25 + 0 + 0) / 3."""
    found = variation(made((0.0, 1.0), (1.0, 1.0), (0.0, 0.0)))
    assert (found.alternatives, found.spread) == (3, 0.25)
    assert found.noise == pytest.approx(1 / 12)
    assert found.signal == pytest.approx(1 / 6)
    assert found.reliability == pytest.approx(2 / 3)


def test_unequal_numbers_of_continuations():
    """Means 1/3 (n 3, variance 1/3) and 1 (n 1, the pooled 1/3): U = 2/9, noise = (1/9 + 1/3) / 2 = 2/9."""
    found = variation(made((0.0, 0.0, 1.0), (1.0,)))
    assert found.spread == pytest.approx(2 / 9)
    assert found.noise == pytest.approx(2 / 9)
    assert found.signal == pytest.approx(0.0)


def test_own_variances_are_not_pooled():
    """Variances 1/2 (n 2) and 0 (n 3): noise = (1/4 + 0) / 2, and 5/72 were they pooled."""
    assert variation(made((0.0, 1.0), (1.0, 1.0, 1.0))).noise == pytest.approx(1 / 8)


def test_one_alternative_varies_by_nothing():
    found = variation(made((0.0, 1.0)))
    assert (found.alternatives, found.spread, found.noise) == (1, 0.0, 0.0)


def test_half_are_chosen_unless_told_otherwise_and_one_of_each_policy_at_least():
    five = [made((0.0,), (at + 1.0,), task=str(at)) for at in range(5)]
    assert chosen(five, "raw_var") == ["2", "3", "4"]
    apart = [made((0.0,), (at + 1.0,), task=str(at), policy=policy) for at, policy in enumerate("pqr")]
    assert chosen(apart, "raw_var") == ["0", "1", "2"]
    mixed = [made((0.0,), (at + 1.0,), task=str(at), policy=policy) for at, policy in enumerate("ppq")]
    assert chosen(mixed, "raw_var") == ["1", "2"]


def test_a_signal_below_zero_is_kept_as_it_is():
    found = variation(made((0.0, 1.0), (0.0, 1.0), (1.0, 0.0)))
    assert found.spread == 0
    assert found.signal == pytest.approx(-0.25)
    assert found.reliability == 0


def test_equal_replies_are_one_alternative_with_all_their_returns():
    found = variation(made((0.0,), (1.0,), (1.0,), replies=[7, 7, 8]))
    assert found.alternatives == 2
    assert found.spread == pytest.approx(0.125)
    assert found.noise == pytest.approx(0.5 * (0.25 + 0.5))  # the lone one takes the pooled variance
    dead = made((0.0,), (1.0,), replies=[7, 7])
    assert variation(dead).alternatives == 1
    assert all(not chosen([dead], rule) for rule in (*RANKED, "all_live", "shrunk"))


def test_one_continuation_tells_nothing_unless_scoring_after_the_last_decision_is_exact():
    assert variation(made((0.0,), (1.0,))).noise is None
    assert variation(made((0.0,), (1.0,)), last_exact=True).noise is None
    assert variation(made((0.0,), (1.0,), last=True)).noise is None
    assert variation(made((0.0,), (1.0,), last=True), last_exact=True).signal == 0.5
    assert chosen([made((0.0,), (1.0,))], "signal") == []
    assert chosen([made((0.0,), (1.0,), last=True)], "signal", last_exact=True) == ["t"]


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(4, 4, 4), (2, 3, 5), (1, 2, 6)])
def test_signal_is_unbiased_and_the_plain_variance_is_not(counts):
    """Invariant 12: within 3 standard errors of the exact value over 2,000 groups.

    A lone return takes the pooled variance, which is unbiased where the variances are equal: they are made so.
    """
    values = (0.2, 0.5, 0.8) if 1 not in counts else (0.3, 0.7, 0.3)
    exact = variance(values)
    noise = fmean(value * (1 - value) / count for value, count in zip(values, counts, strict=True))
    rng = Random(1)
    signals, spreads = [], []
    for _ in range(2000):
        returns = [
            tuple(float(rng.random() < value) for _ in range(count))
            for value, count in zip(values, counts, strict=True)
        ]
        found = variation(made(*returns))
        assert found.signal is not None
        signals.append(found.signal)
        spreads.append(found.spread)
    assert abs(fmean(signals) - exact) < 3 * stdev(signals) / 2000**0.5
    assert abs(fmean(spreads) - exact - noise) < 3 * stdev(spreads) / 2000**0.5
    assert noise > 6 * stdev(spreads) / 2000**0.5


def test_with_one_continuation_and_binary_rewards_the_plain_variance_is_the_success_rate_s():
    for successes in range(5):
        returns = [(1.0,)] * successes + [(0.0,)] * (4 - successes)
        rate = successes / 4
        assert variation(made(*returns)).spread == pytest.approx(4 / 3 * rate * (1 - rate))


FLAT = made((1.0, 0.0), (1.0, 0.0), task="flat", policy="q")
"""Equal means."""
NOISY = made((3.0, 0.0), (0.0, 0.0), task="noisy")
"""U = 1.125, noise = 1.125: all chance."""
TELLING = made((1.0, 1.0), (0.0, 0.0), task="telling", policy="q")
"""U = 0.5, no noise."""
WEAK = made((0.4, 0.4), (0.0, 0.0), task="weak")
"""U = 0.08, no noise."""
GROUPS = [FLAT, NOISY, TELLING, WEAK]


def test_the_rules_choose_what_they_say():
    assert chosen(GROUPS, "all_live") == ["noisy", "telling", "weak"]
    assert chosen(GROUPS, "raw_var", top_k=1) == ["noisy"]
    assert chosen(GROUPS, "signal", top_k=1) == ["telling"]
    assert chosen(GROUPS, "signal", top_k=9) == ["telling", "weak"]
    assert chosen(GROUPS, "signal") == ["telling", "weak"], "half of three live, rounded up"
    assert {chosen(GROUPS, "random_live", seed=seed, top_k=1)[0] for seed in range(30)} == {"noisy", "telling", "weak"}


def test_shrunk_weighs_by_reliability():
    half = made((2.0, 0.0), (0.0, 0.0), (3.0, 3.0), task="half")  # U = 7/3, noise = 1/3
    found = select([half, NOISY, TELLING], Choice("shrunk"), Random(0))
    assert [(group.key.task, group.weight) for group in found] == [("half", pytest.approx(6 / 7)), ("telling", 1.0)]


def test_metrics_count_what_is_trained():
    groups = [made((1.0, 1.0), (1.0, 1.0), task="dead"), made((1.0, 1.0), (0.0, 0.0), task="live")]
    line = selection_metrics(groups, groups)
    assert (line["selection/groups"], line["role/p/selected"]) == (1, 1)


def test_lots_and_floors():
    groups = [
        replace(group, key=group.key._replace(task=f"{group.key.task}{task}")) for task in range(2) for group in GROUPS
    ]
    among = [group.key.task for group in select(groups, Choice("raw_var", 1, "policy"), Random(0))]
    assert among == ["noisy0", "telling0"], "the best of each policy; of equal ones, the first by name"
    one = [
        replace(group, key=group.key._replace(task="same", episode=at // 4, path=f"{at}@0"))
        for at, group in enumerate(groups)
    ]
    found = select(one, Choice("raw_var", 1, "query"), Random(0))
    assert [(group.key.episode, group.policy) for group in found] == [(0, "p"), (1, "p")]
    assert chosen(GROUPS, "raw_var", top_k=2, floor=0) == ["noisy", "telling"]
    assert chosen([NOISY, WEAK, TELLING], "signal", top_k=2, floor=1) == ["weak", "telling"]
    assert chosen([NOISY, TELLING], "signal", top_k=2, floor=1) == ["noisy", "telling"], "a floor asks for no signal"
    with pytest.raises(GroupError, match="floor of 2 for each of 2 policies"):
        chosen(GROUPS, "signal", top_k=3, floor=2)


def test_ties_go_to_the_larger_then_the_earlier_then_the_first_by_name():
    pair, eight = made((1.0,), (0.0,), task="a"), made((2.0,), *[(0.0,)] * 7, task="z", point=9)
    assert variance(pair.values) == variance(eight.values) == 0.5
    assert chosen([pair, eight], "raw_var", top_k=1) == ["z"]
    early, late = made((1.0,), (0.0,), task="z", point=1), made((1.0,), (0.0,), task="a", point=2)
    assert chosen([late, early], "raw_var", top_k=1) == ["z"]
    first = replace(late, key=late.key._replace(task="0"))
    assert chosen([late, first], "raw_var", top_k=1) == ["0"]


def test_a_floor_takes_the_most_varied_where_no_signal_is_known():
    small, large = made((0.1,), (0.0,), task="small"), made((1.0,), (0.0,), task="large", point=3)
    assert chosen([small, large], "signal", top_k=1, floor=1) == ["large"]
    assert chosen([small, large, WEAK], "signal", top_k=3, floor=1) == ["weak"], "known comes first"


returns_ = st.lists(st.integers(0, 3).map(float), min_size=2, max_size=2).map(tuple)
groups_ = st.lists(
    st.tuples(st.lists(returns_, min_size=2, max_size=4), st.sampled_from("pqr"), st.integers(0, 2)), max_size=7
).map(
    lambda found: [
        made(*returns, task=f"t{at % 3}", point=at, policy=policy, episode=episode)
        for at, (returns, policy, episode) in enumerate(found)
    ]
)


@given(
    groups_,
    st.sampled_from((*RANKED, "all_live", "shrunk")),
    st.sampled_from(["query", "policy", "batch"]),
    st.randoms(),
)
def test_order_shifts_and_permutations_change_nothing(groups, rule, among, rng):
    """Invariant 8, and: whatever is selected is live (invariant 9)."""
    choice = Choice(rule, None, among)
    found = {group.key: group.weight for group in select(groups, choice, Random(5))}
    shuffled = rng.sample(groups, len(groups))
    assert {group.key: group.weight for group in select(shuffled, choice, Random(5))} == found
    shifted = [
        replace(
            group,
            members=tuple(
                replace(member, returns=tuple(value + 8 for value in member.returns))
                for member in rng.sample(group.members, len(group.members))
            ),
        )
        for group in groups
    ]
    again = {group.key: group.weight for group in select(shifted, choice, Random(5))}
    assert again == pytest.approx(found)
    assert all(group.live for group in groups if group.key in found)


@given(groups_, st.sampled_from(["raw_var", "signal", "random_live"]), st.integers(0, 1), st.integers(3, 5))
def test_never_more_than_k_and_a_floor_for_every_policy_with_a_live_group(groups, rule, floor, top_k):
    """Invariant 10."""
    found = select(groups, Choice(rule, top_k, "batch", floor), Random(0))
    assert len(found) <= top_k
    for policy in {group.policy for group in groups if group.live and variation(group).alternatives > 1}:
        assert sum(group.policy == policy for group in found) >= floor


@pytest.mark.parametrize("name", ["standardize", "center", "leave_one_out"])
def test_advantages_sum_to_zero(name):
    """Invariant 7; shrunk multiplies the second and third by one number a group."""
    for group in (TELLING, NOISY, WEAK):
        assert sum(CREDIT[name](group.values)) == pytest.approx(0.0, abs=1e-6 * len(group.members))


@pytest.mark.slow
def test_sampling_groups_gives_the_gradient_of_all_live_in_expectation():
    """Invariant 14: inclusion by chance and weights of 1 / probability; within 3 standard errors, 4,000 draws."""
    groups = [made((2.0 * at, at), (0.0, 0.5), task=f"t{at}", point=at) for at in range(1, 7)]
    assert len(select(groups, Choice("all_live"), Random(0))) == 6
    rng = Random(3)
    drawn: dict[str, list[float]] = {group.key.task: [] for group in groups}
    sizes = []
    for _ in range(4000):
        weights = Counter({g.key.task: g.weight for g in select(groups, Choice("sample", 3), rng)})
        sizes.append(sum(weight > 0 for weight in weights.values()))
        for task, values in drawn.items():
            values.append(weights[task])
    assert fmean(sizes) <= 3.1
    for values in drawn.values():
        assert abs(fmean(values) - 1) <= 3 * stdev(values) / 4000**0.5


@pytest.mark.slow
def test_sampling_favours_what_decides():
    """Weights 8, 2 and 0.4 (a twentieth of the most) share one place: 0.769, 0.192, 0.038."""
    groups = [
        made((4.0, 4.0), (0.0, 0.0), task="8"),
        made((2.0, 2.0), (0.0, 0.0), task="2"),
        made((2.0, 0.0), (1.0, 1.5), task="0"),
    ]
    rng = Random(0)
    drawn = Counter(
        name for _ in range(4000) for name in (g.key.task for g in select(groups, Choice("sample", 1), rng))
    )
    for name, weight in (("8", 8.0), ("2", 2.0), ("0", 0.4)):
        assert drawn[name] / 4000 == pytest.approx(weight / 10.4, abs=0.025)


@pytest.mark.slow
def test_a_hard_choice_is_biased_where_sampling_is_not():
    """The k largest look larger than they are: the winner's curse."""
    rng = Random(0)
    found = []
    for _ in range(2000):
        groups = [
            made(*[tuple(float(rng.random() < 0.5) for _ in range(2)) for _ in range(3)], task=f"{at}")
            for at in range(4)
        ]
        found += [variation(group).signal for group in select(groups, Choice("signal", 1), Random(0))]
    assert fmean(found) > 0.2, "nothing at all is controlled here: all alternatives are worth 0.5"
