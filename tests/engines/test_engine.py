"""The embedded engine: what it samples, what it reports, and what it does not compute twice."""

import copy
from random import Random

import pytest
import torch

from coterie.engines.decoding import Decoder, DecodingRow, _moved_up
from coterie.engines.steps import Modules
from coterie.engines.transformers import TransformersConfig, TransformersEngine
from coterie.kernel.engine import Request
from coterie.kernel.episode import ChatMessage
from coterie.kernel.scene import Reply
from coterie.learning.distribution import inverse_cdf, log_distribution, nucleus
from coterie.learning.policy import Policy
from coterie.models.lean import Network
from tests.toys import policies, run, tiny


def request(prompt, seeds, *, key=0, temperature=1.0, top_p=1.0, max_tokens=12, stop=()):
    return Request(
        (f"t{key}", 0, "0@0", "a"),
        "p",
        "a",
        "x",
        tuple(prompt),
        tuple(seeds),
        temperature,
        top_p,
        max_tokens,
        tuple(stop),
    )


def engine_of(model, **config) -> TransformersEngine:
    return TransformersEngine(policies({"p": model}), TransformersConfig(**config))


def prompts(count: int, ragged: bool = True) -> list[list[int]]:
    rng = Random(0)
    return [[rng.randrange(3, 250) for _ in range(9 + (at % 3 if ragged else 0))] for at in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_reported_logprobs_are_those_of_a_full_forward(ragged, temperature):
    model = tiny(scale=3.0)
    engine = engine_of(model)
    wave = [request(prompt, range(4), key=at, temperature=temperature) for at, prompt in enumerate(prompts(5, ragged))]
    for answers in run(engine.generate(wave)):
        for sample in answers:
            ids = torch.tensor([sample.prompt_ids + sample.completion_ids])
            logits = model.net(input_ids=ids, use_cache=False).logits[0, len(sample.prompt_ids) - 1 : -1]
            full = log_distribution(logits, temperature, model.vocabulary)
            expected = full.gather(-1, torch.tensor(sample.completion_ids)[:, None])[:, 0]
            assert list(sample.logprobs) == pytest.approx(expected.tolist(), rel=0, abs=1e-4)
            assert sample.temperature == temperature


@pytest.mark.parametrize(("large", "heads", "wholes"), [(0, 9, 3 * 3), (50_000_000, 0, 3 * 12)])
def test_what_prompts_begin_with_is_read_once_by_large_networks(large, heads, wholes, monkeypatch):
    """One prompt is the beginning of the others: its last token is read with the rest of them."""
    monkeypatch.setattr("coterie.models.load.LARGE", large)
    read, through = [], Network.through
    monkeypatch.setattr(
        Network,
        "through",
        lambda self, weights, ids, *more: read.append(ids.numel()) or through(self, weights, ids, *more),
    )
    model, head = tiny(scale=3.0), tuple(range(20, 30))
    engine = engine_of(model)
    wave = [request((*head, *rest), (1, 2), key=at) for at, rest in enumerate([(), (5, 6), (7,)])]
    run(engine.generate(wave))  # measures the network first
    read.clear()
    for answers in run(engine.generate(wave)):
        for sample in answers:
            ids = torch.tensor([sample.prompt_ids + sample.completion_ids])
            logits = model.net(input_ids=ids, use_cache=False).logits[0, len(sample.prompt_ids) - 1 : -1]
            full = log_distribution(logits, 1.0, model.vocabulary)
            expected = full.gather(-1, torch.tensor(sample.completion_ids)[:, None])[:, 0]
            assert list(sample.logprobs) == pytest.approx(expected.tolist(), rel=0, abs=1e-4)
    assert read[: 2 if heads else 1] == ([heads] if heads else []) + [wholes]


def test_sampled_frequencies_match_the_exact_distribution():
    model = tiny(scale=6.0)
    engine = engine_of(model)
    prompt = prompts(1)[0]
    draws = 4000
    (answers,) = run(engine.generate([request(prompt, range(draws), max_tokens=1)]))
    logits = model.net(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]
    exact = log_distribution(logits.detach(), 1.0, model.vocabulary).exp()
    counts = torch.zeros_like(exact)
    for sample in answers:
        counts[sample.completion_ids[0]] += 1
    expected = exact * draws
    likely = expected >= 5
    statistic = (((counts - expected) ** 2 / expected.clamp(min=1e-9))[likely]).sum()
    degrees = int(likely.sum()) - 1
    assert degrees > 10
    assert float(statistic) < degrees + 4 * (2 * degrees) ** 0.5  # chi squared: 4 deviations above its mean


def test_a_sample_depends_on_its_seed_not_on_its_wave():
    engine = engine_of(tiny(scale=3.0))
    three = prompts(3)
    together = run(engine.generate([request(prompt, [7, 8], key=at) for at, prompt in enumerate(three)]))
    (alone,) = run(engine.generate([request(three[1], [8])]))
    assert alone[0].completion_ids == together[1][1].completion_ids
    assert [[sample.seed for sample in group] for group in together] == [[7, 8]] * 3
    assert {sample.version for group in together for sample in group} == {0}  # of weights that no update has moved


@pytest.mark.slow
@pytest.mark.parametrize("lean", [True, False])
def test_temperatures_and_limits_stay_with_their_rows_where_others_have_ended(lean):
    engine = engine_of(tiny(scale=3.0))
    engine._decoders["p"].lean = lean
    engine._decoders["p"].model.stop_ids = frozenset()
    each = [(2.0, 3), (0.3, 9), (1.0, 6), (0.1, 12)]
    wave = [
        request(prompt, [7, 8], key=at, temperature=temperature, max_tokens=limit)
        for at, (prompt, (temperature, limit)) in enumerate(zip(prompts(4), each, strict=True))
    ]
    for asked, samples in zip(wave, run(engine.generate(wave)), strict=True):
        (alone,) = run(engine.generate([asked]))
        assert [sample.completion_ids for sample in samples] == [sample.completion_ids for sample in alone]
        assert {(len(sample.completion_ids), sample.finish) for sample in samples} == {(asked.max_tokens, "length")}


@pytest.mark.slow
def test_long_replies_draw_on_from_their_own_seeds_whoever_has_ended_beside_them():
    """More tokens than are drawn for at once, in waves of other rows."""
    engine = engine_of(tiny(scale=3.0))
    engine._decoders["p"].model.stop_ids = frozenset()
    both = [request(prompts(2)[0], [1], max_tokens=70), request(prompts(2)[1], [2], key=1, max_tokens=40)]
    (long,), (short,) = run(engine.generate(both))
    assert (len(long.completion_ids), len(short.completion_ids)) == (70, 40)
    chance, ids, model = Random(1), list(prompts(2)[0]), engine._decoders["p"].model
    for token in long.completion_ids:
        with torch.no_grad():
            logits = model.net(input_ids=torch.tensor([ids])).logits[0, -1:]
        number = torch.tensor([chance.random()], dtype=torch.float64)
        assert token == int(inverse_cdf(log_distribution(logits, 1.0, model.vocabulary), number))
        ids.append(token)
    assert run(engine.generate(both[:1]))[0][0].completion_ids == long.completion_ids
    assert run(engine.generate(both[1:]))[0][0].completion_ids == short.completion_ids


def test_equal_waves_give_equal_floats():
    engine = engine_of(tiny(scale=3.0))
    wave = [request(prompt, [1, 2, 3], key=at) for at, prompt in enumerate(prompts(4))]
    assert run(engine.generate(wave)) == run(engine.generate(wave))


def test_each_distinct_prompt_is_prefilled_once_and_ended_rows_leave(monkeypatch):
    model = tiny(scale=3.0)
    engine = engine_of(model)
    assert engine._decoders["p"].costs  # found once, by forwards of its own
    shapes: list[tuple[int, ...]] = []
    through = Network.through

    def counted(self, weights, ids, *others):
        shapes.append(tuple(ids.shape))
        return through(self, weights, ids, *others)

    monkeypatch.setattr(Network, "through", counted)
    same = prompts(1)[0]
    wave = [request(same, range(5), key=0), request(same, range(5, 9), key=1), request(prompts(2)[1], [3], key=2)]
    answers = run(engine.generate(wave))
    assert shapes[0] == (2, 10)
    lengths = sorted(len(sample.completion_ids) for group in answers for sample in group)
    alive = [sum(length > step for length in lengths) for step in range(1, max(lengths))]
    assert [rows for rows, _ in shapes[1:]] == alive


def test_gaps_of_rows_that_have_ended_are_filled_by_the_last_ones():
    assert _moved_up(5, {1}) == [0, 4, 2, 3]
    assert _moved_up(5, {4}) == [0, 1, 2, 3]
    assert _moved_up(6, {0, 2, 5}) == [4, 1, 3]
    assert _moved_up(3, {0, 1}) == [2]


def test_greedy_takes_the_most_likely_token_with_probability_one():
    model = tiny(scale=3.0)
    wave = [request(prompt, [1], key=at, temperature=0.0) for at, prompt in enumerate(prompts(4))]
    answers = run(engine_of(model).generate(wave))
    assert len({samples[0].completion_ids for samples in answers}) == 4
    for asked, samples in zip(wave, answers, strict=True):
        ids = list(asked.prompt_ids)
        for token in samples[0].completion_ids:
            logits = model.net(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1, : model.vocabulary]
            assert token == int(logits.argmax())
            ids.append(token)
        assert set(samples[0].logprobs) == {0.0}


def test_ids_of_the_padded_embedding_are_never_sampled():
    model = tiny()
    assert model.net.config.vocab_size > model.vocabulary
    (answers,) = run(engine_of(model).generate([request(prompts(1)[0], range(300))]))
    assert max(token for sample in answers for token in sample.completion_ids) < model.vocabulary


@pytest.mark.slow
def test_a_reply_ends_at_a_stop_token_a_stop_string_or_the_limit():
    model = tiny()
    engine = engine_of(model)
    (answers,) = run(engine.generate([request(prompts(1)[0], range(200), max_tokens=40, stop=("a",))]))
    kinds = {sample.finish for sample in answers}
    assert kinds == {"stop", "string", "length"}
    for sample in answers:
        assert "a" not in sample.text
        assert (sample.completion_ids[-1] in model.stop_ids) == (sample.finish == "stop")
        assert (len(sample.completion_ids) == 40) or sample.finish != "length"
        words = sample.completion_ids[: -1 if sample.finish == "stop" else None]
        whole = model.tokenizer.decode(words, skip_special_tokens=False)
        assert whole == sample.text or (sample.finish == "string" and whole.startswith(f"{sample.text}a"))
        assert len(sample.reply().ids) == len(sample.completion_ids) - (sample.finish == "stop")


def test_the_distribution_is_where_the_logits_are():
    """Tensors of the meta device hold no numbers, and none of another device may meet them."""
    logits = torch.empty(2, 8, device="meta")
    distribution = log_distribution(logits, 1.0, 5)
    ids = inverse_cdf(nucleus(distribution, 0.5), torch.rand(2, dtype=torch.float64))
    assert (distribution.device.type, ids.device.type, ids.dtype) == ("meta", "meta", torch.int64)
    model = tiny()
    engine = engine_of(model)
    model.net.to("meta")
    rows = [DecodingRow(request(prompt, [1]), 1, Random(1)) for prompt in prompts(3, ragged=False)]
    decoder = engine._decoders["p"]
    assert decoder._start(Modules(decoder.net), rows).device.type == "meta"


# probabilities 0.5 0.3 0.15 0.05; 0.8 keeps two: 5/8, 3/8; 0.81 keeps three
def test_nucleus_by_hand():
    distribution = torch.tensor([[0.15, 0.5, 0.05, 0.3]]).log()
    assert nucleus(distribution, 0.79).exp()[0].tolist() == pytest.approx([0, 0.625, 0, 0.375], rel=0, abs=1e-6)
    kept = nucleus(distribution, 0.81).exp()[0].tolist()
    assert kept == pytest.approx([0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95], rel=0, abs=1e-6)
    assert nucleus(distribution, 1.0) is distribution


def test_a_nucleus_that_is_reached_exactly_holds_no_further_token():
    """1/2 + 1/4 is 3/4, to the bit; the third token begins where the nucleus ends."""
    distribution = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    assert (nucleus(distribution, 0.75).exp()[0] > 0).tolist() == [True, True, False, False]
    assert (nucleus(distribution, 0.5).exp()[0] > 0).tolist() == [True, False, False, False]


def test_top_p_reports_the_renormalised_distribution():
    model = tiny(scale=6.0)
    (answers,) = run(engine_of(model).generate([request(prompts(1)[0], range(64), top_p=0.5, max_tokens=1)]))
    logits = model.net(input_ids=torch.tensor([prompts(1)[0]]), use_cache=False).logits[:, -1]
    exact = nucleus(log_distribution(logits, 1.0, model.vocabulary), 0.5)[0]
    for sample in answers:
        assert sample.logprobs[0] == pytest.approx(exact[sample.completion_ids[0]].item(), rel=0, abs=1e-5)


# cumulated 0.2 0.7 1.0
def test_inverse_cdf_by_hand():
    distribution = torch.tensor([[0.2, 0.5, 0.3]]).log().repeat(5, 1)
    uniform = torch.tensor([0.0, 0.199, 0.2001, 0.69, 0.9999], dtype=torch.float64)
    assert inverse_cdf(distribution, uniform).tolist() == [0, 0, 1, 1, 2]


def test_what_rounding_took_away_leads_to_no_id_beyond_the_last():
    short = torch.tensor([[0.1, 0.4]]).log().repeat(3, 1)  # they sum to a half, as no distribution quite sums to one
    uniform = torch.tensor([0.1, 0.3, 0.9999], dtype=torch.float64)
    assert inverse_cdf(short, uniform).tolist() == [0, 1, 1]


@pytest.mark.parametrize("total", [1.0, 1.0 + 3e-7, 0.6])
def test_the_largest_number_there_is_takes_the_last_id_that_may_be(total):
    distribution = (torch.tensor([[0.5, 0.25, 0.25, 0.0]]) * total).log()
    assert inverse_cdf(distribution, torch.tensor([1 - 2.0**-53], dtype=torch.float64)).tolist() == [2]


def test_what_is_no_number_leads_to_an_id_that_there_is():
    distribution = torch.full((1, 448), float("nan"))
    assert 0 <= int(inverse_cdf(distribution, torch.tensor([0.5], dtype=torch.float64))) < 448


def test_the_rarest_ids_are_taken_where_their_numbers_are():
    distribution = torch.tensor([[1 - 1e-6, 1e-6]], dtype=torch.float64).log().float()
    uniform = torch.tensor([1 - 5e-7], dtype=torch.float64)
    assert inverse_cdf(distribution, uniform).tolist() == [1]


def test_a_forbidden_first_id_is_not_taken_at_zero():
    distribution = torch.tensor([[float("-inf"), 0.0]])
    assert inverse_cdf(distribution, torch.zeros(1, dtype=torch.float64)).tolist() == [1]


@pytest.mark.parametrize("lean", [True, False])
def test_bfloat16_samples_from_a_copy_that_sync_refreshes(lean):
    model = tiny(scale=3.0)
    model.lean = lean
    engine = TransformersEngine({"p": Policy("p", model, dtype=torch.bfloat16)})
    wave = [request(prompts(1)[0], [1], temperature=0.0)]
    before = run(engine.generate(wave))
    with torch.no_grad():
        for weight in model.net.parameters():
            weight.copy_(torch.randn_like(weight) * 0.2)
    assert run(engine.generate(wave)) == before
    run(engine.sync("p", 5))
    after = run(engine.generate(wave))
    assert after[0][0].completion_ids != before[0][0].completion_ids
    assert after[0][0].version == 5
    decoder = engine._decoders["p"]
    copies = [layer.qkv.weight for layer in decoder.steps()._weights.layers] if lean else decoder.net.parameters()  # pyright: ignore[reportAttributeAccessIssue]
    assert {weight.dtype for weight in copies} == {torch.bfloat16}
    assert {weight.dtype for weight in model.net.parameters()} == {torch.float32}


def test_a_wave_that_takes_more_than_the_engines_memory_is_decoded_in_parts(monkeypatch):
    model = tiny(scale=3.0)
    three = Decoder(Policy("p", model)).costs.of(rows=3, prompts=2, longest=9, max_tokens=12)
    engine, whole = engine_of(model, memory_gib=three / 2**30), engine_of(model)
    sizes, fill = [], engine._decoders["p"].fill
    monkeypatch.setattr(engine._decoders["p"], "fill", lambda rows: (sizes.append(len(rows)), fill(rows))[1])
    wave = [request(prompt, [1, 2], key=at) for at, prompt in enumerate(prompts(4, ragged=False))]
    ids = [[sample.completion_ids for sample in group] for group in run(engine.generate(wave))]
    assert ids == [[sample.completion_ids for sample in group] for group in run(whole.generate(wave))]
    assert sizes == [3, 3, 2]


def test_batches_are_cut_where_the_next_row_would_take_too_much():
    decoder = Decoder(Policy("p", tiny()))
    rows = [
        DecodingRow(request(prompt, [seed], key=at, max_tokens=100 if at == 0 else 4), seed, Random(0))
        for at, prompt in enumerate(sorted(prompts(6, ragged=False)))
        for seed in (1, 2)
    ]
    two = decoder.costs.of(rows=2, prompts=2, longest=9, max_tokens=4)
    assert two < decoder.costs.of(rows=1, prompts=1, longest=9, max_tokens=100)
    assert two < decoder.costs.of(rows=3, prompts=2, longest=9, max_tokens=4)
    sizes = [len(batch) for batch in decoder.batches(rows, two)]
    assert sizes == [1, 1, 2, 2, 2, 2, 2]  # the first two may have long replies, and are alone


def test_a_roles_own_words_go_in_as_it_sampled_them_and_the_template_takes_its_variables():
    model = copy.copy(tiny())
    model.tokenizer = copy.deepcopy(model.tokenizer)
    model.tokenizer.chat_template = "{{ mood }}{% for m in messages %}{{ m.content }}{% endfor %}"
    encode = model.tokenizer.encode
    own = Reply("a", "go", ids=(7, 7, 7), policy="p")
    engine = TransformersEngine({"p": Policy("p", model, template={"mood": "b1"}), "q": Policy("q", model)})
    begin = encode("b1", add_special_tokens=False)
    assert list(engine.render("p", "a", (ChatMessage("assistant", own),))) == [*begin, 7, 7, 7]
    words = encode("go", add_special_tokens=False)
    assert list(engine.render("p", "b", (ChatMessage("assistant", own),))) == [*begin, *words]  # another's
    assert list(engine.render("q", "a", (ChatMessage("assistant", own),))) == words  # another policy, no mood
