"""What a computation takes of memory, counted: small sums by hand."""

from random import Random

import pytest
import torch

from coterie import ram
from coterie.engines.decoding import Decoder, DecodingRow, budget_gib, left_bytes
from coterie.errors import ConfigError
from coterie.learning.policy import Policy
from coterie.models import hub, memory, shapes
from coterie.models.load import copied
from coterie.models.meter import Meter, at_once
from coterie.models.shapes import QWEN3, Shapes
from tests.engines.test_engine import request
from tests.families import family
from tests.toys import tiny

PARAMETERS = {
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-1.7B": 1_720_574_976,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-4B-Instruct-2507": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
}
"""As their publisher counts them: 0.6, 1.7, 4.0, 4.0 and 8.2 billion."""


def test_what_is_there_and_what_was_there_at_once():
    weight = torch.ones(10, 20, requires_grad=True)  # 800 bytes, known
    with Meter([weight]) as taken:
        column = torch.ones(20, 1)  # 80
        product = weight @ column  # 40
        assert (taken.live, taken.peak) == (120, 120)
        weight.view(20, 10)  # looks into what is known
        assert taken.live == 120
        square = product * product  # 40
        del column  # kept for the backward pass
        assert (taken.live, taken.peak) == (160, 160)
        del product, square
        assert (taken.live, taken.peak) == (0, 160)
        torch.ones(5)  # comes and goes
        assert (taken.live, taken.peak) == (0, 160)


def test_tensors_without_numbers_count_as_those_with():
    def backward(net: torch.nn.Module, ids: torch.Tensor) -> tuple[int, int]:
        known = list(net.state_dict(keep_vars=True).values())
        with Meter(known) as taken:
            net(input_ids=ids, use_cache=False).logits.sum().backward()
            return taken.live, taken.peak

    real, mode = tiny().net, Shapes()
    numberless = mode.counted(tiny()).net
    with mode.mode:
        found = backward(numberless, torch.zeros(2, 9, dtype=torch.long))
    assert found == backward(real, torch.zeros(2, 9, dtype=torch.long))


def test_the_cache_of_a_token_by_hand():
    costs = Decoder(Policy("p", tiny())).costs
    cache = 2 * 2 * 16 * 4  # two layers, one head of 16 for keys and one for values, float32
    assert costs.token == cache + 16 // 2 * 8 // 2 + 4  # RoPE's angles, complex, for two rows; what padding adds
    assert 0 <= costs.row - 320 * 4 < 64  # logits of 320 tokens; old versions of Transformers keep a few bytes beside
    assert costs.choice == 24 * 320
    assert costs.prompt > 0
    assert 1 <= costs.attention < 100  # a byte a pair of tokens for the mask, at least
    reading = 2 * (9 * costs.prompt + int(81 * costs.attention))
    whole = 3 * (costs.row + 21 * costs.token) + max(
        reading, 3 * 24 * 320
    )  # prompts are read first, tokens are chosen then
    assert costs.of(rows=3, prompts=2, longest=9, max_tokens=12) == whole
    many = costs.of(rows=10**6, prompts=1, longest=9, max_tokens=12)
    assert many == 10**6 * (costs.row + 21 * costs.token) + (1 << 30)  # in parts


@pytest.mark.parametrize("name", ["qwen3", "gemma2", "gpt_oss", "bamba"])
def test_what_long_prompts_take_is_foreseen_from_short_ones(name):
    decoder = Decoder(Policy("p", family(name)))
    decoder.model.pads = name != "bamba"
    each = [at * decoder.model.pads for at in range(4)]  # no beginning that all share, or one prompt
    rows = [DecodingRow(request([5 + at] * (200 - at), [0], max_tokens=1), 0, Random(0)) for at in each]
    with torch.no_grad(), Meter(decoder.net.state_dict().values()) as taken:
        decoder.fill(rows)
    assert 0.7 < decoder.costs.of(4, 4 if decoder.model.pads else 1, 200, 1) / taken.peak < 1.6


def test_choosing_tokens_takes_what_is_foreseen_at_most():
    decoder = Decoder(Policy("p", tiny()))
    rows = [DecodingRow(request([5] * 9, [seed], max_tokens=4), seed, Random(seed)) for seed in range(64)]
    logits, uniform, temperatures = torch.zeros(64, 320), torch.rand(64, dtype=torch.float64), torch.ones(64)
    with Meter([logits, uniform, temperatures]) as taken:
        decoder._choose(logits, uniform, temperatures, rows[0])
    assert 0.7 * 64 * decoder.costs.choice < taken.peak <= 64 * decoder.costs.choice


def test_a_state_counts_once_a_row_however_long_it_is():
    costs = Decoder(Policy("p", family("bamba"))).costs
    assert costs.row > 10 * 320 * 4


@pytest.mark.parametrize("source", QWEN3)
def test_published_shapes_have_as_many_parameters_as_is_published(source, monkeypatch):
    monkeypatch.setattr(hub, "answers", lambda: False)
    model = Shapes().load(source, where="policies.p.model")
    assert model.size == PARAMETERS[source]
    assert model.tokenizer is None
    assert model.device.type == "meta"


def test_a_shape_that_cannot_be_had_is_one_line(monkeypatch):
    monkeypatch.setattr(shapes.hub, "answers", lambda: False)
    with pytest.raises(
        ConfigError,
        match=r"^policies\.p\.model = 'nobody/knows': no config of that name can be had .* hf download nobody/knows",
    ):
        Shapes().load("nobody/knows", where="policies.p.model")


def test_copies_share_what_was_shared_and_keep_what_is_trained():
    base = tiny()
    base.net.requires_grad_(False)
    other = copied(base.net)
    assert not any(weight.requires_grad for weight in other.parameters())
    assert other.get_input_embeddings().weight is other.get_output_embeddings().weight  # tied
    together: dict[int, object] = {}
    first, second = (copied(base.net, instead=together) for _ in range(2))
    assert first is not second
    assert all(a is b for a, b in zip(first.parameters(), second.parameters(), strict=True))
    halved = copied(tiny().net, lambda weight: weight.to(torch.bfloat16))
    assert {weight.dtype for weight in halved.parameters()} == {torch.bfloat16}
    assert all(buffer.dtype == torch.float32 for buffer in halved.buffers() if buffer.is_floating_point())


def test_logits_of_so_many_tokens_are_looked_at_at_once():
    assert at_once(512) == 87_381
    assert at_once(151_936) == 294  # 1 GiB / (151,936 x 24 bytes)
    assert at_once(1 << 40) == 1


@pytest.mark.parametrize(
    ("left", "gib"), [(20 << 30, 8.0), (16 << 30, 8.0), ((16 << 30) - 1, 4.0), (-5, 0.125), (0, 0.125)]
)
def test_an_engine_takes_half_of_what_is_left_to_a_power_of_two(left, gib):
    assert budget_gib(left) == gib


def test_what_is_left_is_free_memory_less_what_training_will_take(monkeypatch):
    from coterie.engines import decoding

    monkeypatch.setattr(decoding, "free_bytes", lambda device: 1_000_000_000)
    model, frozen = tiny(), tiny()
    frozen.net.requires_grad_(False)
    assert left_bytes([Policy("p", model), Policy("q", frozen)]) == 1_000_000_000 - 12 * model.size
    elsewhere = tiny()
    elsewhere.net.to("meta")  # pyright: ignore[reportArgumentType]
    frees = {"cpu": 1_000_000_000, "meta": 5_000_000}
    monkeypatch.setattr(decoding, "free_bytes", lambda device: frees[device.type])
    left = left_bytes([Policy("p", model), Policy("q", elsewhere)])
    assert left == 5_000_000 - 12 * sum(weight.numel() for weight in elsewhere.trained)  # the least of the two


def test_a_container_may_have_less_than_the_machine(tmp_path, monkeypatch):
    limit, taken = tmp_path / "limit", tmp_path / "taken"
    monkeypatch.setattr(ram, "LIMITS", ((str(limit), str(taken), "inactive_file"),))
    (tmp_path / "memory.stat").write_text("anon 200\ninactive_file 100\n")
    whole = memory.total_bytes(torch.device("cpu"))
    assert whole > 1 << 30
    limit.write_text("max\n")
    taken.write_text("300\n")
    assert memory.total_bytes(torch.device("cpu")) == whole
    limit.write_text("1000\n")
    assert memory.total_bytes(torch.device("cpu")) == 1000
    assert memory.free_bytes(torch.device("cpu")) == 1000 - (300 - 100), "file cache is given up"
    for said in ("anon 200\n", "no pairs of words\n", None):
        (tmp_path / "memory.stat").unlink() if said is None else (tmp_path / "memory.stat").write_text(said)
        assert memory.total_bytes(torch.device("cpu")) == 1000, "the limit holds all the same"
        assert memory.free_bytes(torch.device("cpu")) == 700


def test_many_logits_are_looked_at_in_parts_and_the_same_tokens_are_chosen(monkeypatch):
    from coterie.engines import decoding
    from tests.engines.test_engine import prompts

    def sampled() -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
        policy = Policy("p", tiny(scale=3.0))
        engine = decoding.Decoder(policy)
        rows = [
            decoding.DecodingRow(request(prompt, [seed], key=at, temperature=float(at > 0)), seed, Random(seed))
            for at, prompt in enumerate(prompts(4))
            for seed in range(3)
        ]
        for batch in engine.batches(rows, 1e12):
            engine.fill(batch)
        return [(tuple(row.ids), tuple(row.logprobs)) for row in rows]

    whole = sampled()
    monkeypatch.setattr(decoding, "at_once", lambda vocabulary: 5)
    assert sampled() == whole
