"""The rollout engine against plain forward passes of the same weights, and its life: abort, new weights, breakdown."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM
from transformers.generation.continuous_batching import continuous_api

from agentgym_rl.errors import ConfigurationError, Manner, PolicyFailed
from verl_ext.rollout import engine as engine_module
from verl_ext.rollout.engine import BLOCK_TOKENS, Engine, Generation, Sampling
from verl_ext.rollout.packed_attention import packed_attention

T = TypeVar("T")
VOCABULARY = 61
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
}
MAKERS: dict[str, Callable[[], PreTrainedModel]] = {
    # shared key-value heads and tied embeddings in the one, neither in the other
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(num_key_value_heads=2, tie_word_embeddings=True, **SIZES)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(num_key_value_heads=4, tie_word_embeddings=False, **SIZES)),
}
PROMPT = [5, 17, 3, 44, 8]


def model_of(seed: int, architecture: str = "qwen2") -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MAKERS[architecture]().eval()


class Plain:
    """The same weights without cache, batch or packing."""

    def __init__(self, seed: int, architecture: str = "qwen2"):
        self._model = model_of(seed, architecture)

    @torch.no_grad()
    def logits(self, ids: list[int]) -> torch.Tensor:
        return self._model(torch.tensor([ids]), use_cache=False).logits[0]

    def logprobs(self, prompt: list[int], reply: list[int], temperature: float) -> list[float]:
        scores = (self.logits(prompt + reply)[len(prompt) - 1 : -1] / temperature).log_softmax(-1)
        return scores[torch.arange(len(reply)), reply].tolist()

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        ids = list(prompt)
        for _ in range(count):
            ids.append(int(self.logits(ids)[-1].argmax()))
        return ids[len(prompt) :]


@pytest.fixture
async def engines() -> AsyncIterator[Callable[..., Engine]]:
    """Makes engines, and stops their threads at the end of the test."""
    made: list[Engine] = []

    def make(seed: int = 0, architecture: str = "qwen2", cache: int = 32_768) -> Engine:
        made.append(Engine(model_of(seed, architecture), cache))
        return made[-1]

    yield make
    for engine in made:
        engine.drop_batch()


async def soon(call: Awaitable[T]) -> T:
    """What hangs is to fail its test."""
    return await asyncio.wait_for(call, 60)


async def started(engine: Engine, long: int = 1500) -> asyncio.Task[Generation]:
    """A long greedy request that has some tokens by now: a shorter one has run beside it."""
    task = asyncio.create_task(engine.generate(PROMPT, Sampling(long, temperature=0)))
    await asyncio.sleep(0)
    await soon(engine.generate(PROMPT, Sampling(20)))
    return task


# What is sampled


@pytest.mark.parametrize(
    ("architecture", "sessions", "batch_tokens", "cache"),
    [
        ("qwen2", 24, 4096, 32_768),
        ("llama", 24, 4096, 32_768),
        ("qwen2", 12, 48, 32_768),  # prompts come in pieces, between the others' single tokens
        ("qwen2", 12, 4096, 768),  # two or three sessions fit at a time
    ],
)
async def test_log_probs_are_those_of_a_plain_forward(
    engines, monkeypatch, architecture, sessions, batch_tokens, cache
):
    monkeypatch.setattr(engine_module, "BATCH_TOKENS", batch_tokens)
    engine, plain = engines(3, architecture, cache), Plain(3, architecture)
    shared = [random.Random(1).randrange(VOCABULARY) for _ in range(70)]

    async def play(number: int) -> None:
        draw = random.Random(number)
        ids = shared[: draw.choice([32, 64, 70])] + [draw.randrange(VOCABULARY) for _ in range(draw.randrange(9))]
        for _ in range(3):
            temperature = draw.choice([0.5, 1.0, 1.7])
            sampling = Sampling(draw.randrange(1, 30), temperature, stop_ids=(7, 8))
            said = await engine.generate(ids, sampling)
            assert 1 <= len(said.ids) <= sampling.max_tokens
            assert said.logprobs == pytest.approx(plain.logprobs(ids, said.ids, temperature), abs=1e-4)
            ids = ids + said.ids + [draw.randrange(VOCABULARY) for _ in range(draw.randrange(40))]

    await soon(asyncio.gather(*(play(number) for number in range(sessions))))


async def test_a_prompt_of_whole_cached_blocks_gives_the_same_again(engines):
    engine, plain = engines(), Plain(0)
    prompt = [random.Random(2).randrange(VOCABULARY) for _ in range(3 * BLOCK_TOKENS)]
    for _ in range(2):
        said = await soon(engine.generate(prompt, Sampling(40)))
        assert said.logprobs == pytest.approx(plain.logprobs(prompt, said.ids, 1.0), abs=1e-4)


async def test_temperature_0_says_the_most_likely_token_with_probability_1(engines):
    said = await soon(engines().generate(PROMPT, Sampling(50, temperature=0)))
    assert said.ids == Plain(0).greedy(PROMPT, 50)
    assert said.logprobs == pytest.approx([0.0] * 50, abs=1e-6)


async def test_tokens_come_as_often_as_their_probability_says(engines):
    engine = engines(cache=131_072)
    said = await soon(asyncio.gather(*(engine.generate(PROMPT, Sampling(1)) for _ in range(600))))
    counts = torch.bincount(torch.tensor([reply.ids[0] for reply in said]), minlength=VOCABULARY)
    expected = Plain(0).logits(PROMPT)[-1].softmax(-1)
    deviation = (600 * expected * (1 - expected)).sqrt()
    assert ((counts - 600 * expected).abs() < 6 * deviation + 1).all()


async def test_a_reply_ends_with_the_first_stop_id_which_it_includes(engines):
    greedy = Plain(0).greedy(PROMPT, 30)
    first, second = greedy[4], greedy[9]
    stop_ids = (second, first)
    expected = greedy[: min(greedy.index(first), greedy.index(second)) + 1]
    said = await soon(engines().generate(PROMPT, Sampling(30, temperature=0, stop_ids=stop_ids)))
    assert (said.ids, said.aborted) == (expected, False)


@pytest.mark.parametrize("count", [1, 33])
async def test_without_a_stop_id_a_reply_has_max_tokens(engines, count):
    said = await soon(engines().generate(PROMPT, Sampling(count)))
    assert (len(said.ids), len(said.logprobs), said.aborted) == (count, count, False)


async def test_the_next_batch_does_not_repeat_the_draws_of_the_last(engines):
    engine = engines()
    first = await soon(engine.generate(PROMPT, Sampling(40)))
    engine.drop_batch()
    assert (await soon(engine.generate(PROMPT, Sampling(40)))).ids != first.ids


# What can't be asked for


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1; given: 0"),
        ({"max_tokens": 1, "temperature": -0.1}, "temperature must be >= 0; given: -0.1"),
        ({"max_tokens": 1, "temperature": float("nan")}, "temperature must be >= 0; given: nan"),
    ],
)
def test_sampling_that_can_not_work_is_refused(arguments, message):
    with pytest.raises(ConfigurationError) as error:
        Sampling(**arguments)
    assert message in str(error.value)


async def test_what_can_never_fit_is_refused_and_what_just_fits_is_not(engines):
    engine = engines(cache=320)
    said = await soon(engine.generate([1] * 300, Sampling(20)))
    assert len(said.ids) == 20
    with pytest.raises(ConfigurationError, match="a prompt of 301 tokens with 20 new ones does not fit: .* 1 to 320"):
        await engine.generate([1] * 301, Sampling(20))
    with pytest.raises(ConfigurationError, match="a prompt of 0 tokens"):
        await engine.generate([], Sampling(20))


# Abort, resume, cancel


async def test_a_pause_hands_back_a_beginning_that_can_be_resumed(engines):
    engine = engines()
    task = await started(engine)
    engine.pause()
    begun = await soon(task)
    assert begun.aborted
    assert 0 < len(begun.ids) == len(begun.logprobs) < 1500
    engine.resume()
    rest = await soon(engine.generate(PROMPT + begun.ids, Sampling(20, temperature=0)))
    assert begun.ids + rest.ids == Plain(0).greedy(PROMPT, len(begun.ids) + 20)


async def test_a_request_of_a_pause_waits_for_the_resume(engines):
    engine = engines()
    engine.pause()
    task = asyncio.create_task(engine.generate(PROMPT, Sampling(3)))
    await asyncio.sleep(0.05)
    engine.resume()
    engine.pause()  # before the request has woken up
    await asyncio.sleep(0.05)
    assert not task.done()
    engine.resume()
    assert len((await soon(task)).ids) == 3


async def test_a_cancelled_request_is_computed_no_further(engines):
    engine = engines()
    task = await started(engine)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    queries: list[int] = []
    engine._model.register_forward_pre_hook(
        lambda _, __, named: queries.append(named["input_ids"].shape[-1]), with_kwargs=True
    )
    await soon(engine.generate(PROMPT, Sampling(20)))
    assert queries[-5:] == [1] * 5


# New weights


async def test_new_weights_speak_at_once_also_about_a_prompt_seen_before(engines):
    engine, prompt = engines(0), PROMPT * 20
    await soon(engine.generate(prompt, Sampling(5)))
    engine.load_weights(model_of(1).state_dict().items())
    said = await soon(engine.generate(prompt, Sampling(30)))
    assert said.logprobs == pytest.approx(Plain(1).logprobs(prompt, said.ids, 1.0), abs=1e-4)
    assert said.logprobs != pytest.approx(Plain(0).logprobs(prompt, said.ids, 1.0), abs=1e-2)


async def test_new_weights_abort_what_the_old_ones_had_begun(engines):
    engine = engines()
    task = await started(engine)
    engine.load_weights(model_of(1).state_dict().items())
    begun = await soon(task)
    assert begun.aborted
    assert begun.ids == Plain(0).greedy(PROMPT, len(begun.ids))


async def test_a_tied_output_layer_need_not_be_sent(engines):
    engine = engines(0)
    engine.load_weights((name, tensor) for name, tensor in model_of(1).state_dict().items() if "lm_head" not in name)
    said = await soon(engine.generate(PROMPT, Sampling(20, temperature=0)))
    assert said.ids == Plain(1).greedy(PROMPT, 20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.update(head=torch.zeros(1)), r"unknown \['head'\], missing \[\]"),
        (lambda weights: weights.pop("model.norm.weight"), r"unknown \[\], missing \['model.norm.weight'\]"),
        (
            lambda weights: weights.update({"model.norm.weight": torch.ones(3)}),
            r"missing \[\], of another shape \['model.norm.weight'\]",
        ),
    ],
)
def test_weights_of_another_model_are_refused(change, message):
    weights = dict(model_of(1).state_dict())
    change(weights)
    engine = Engine(model_of(0), 512)
    with pytest.raises(ConfigurationError, match=message):
        engine.load_weights(weights.items())
    assert all(
        torch.equal(tensor, model_of(0).state_dict()[name]) for name, tensor in engine._model.state_dict().items()
    )


def test_an_untied_output_layer_must_be_sent():
    weights = {name: tensor for name, tensor in model_of(1, "llama").state_dict().items() if "lm_head" not in name}
    with pytest.raises(ConfigurationError, match=r"missing \['lm_head.weight'\]"):
        Engine(model_of(0, "llama"), 512).load_weights(weights.items())


# Breakdown


def break_after(passes: int, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    """The model raises once, at this pass."""
    forward, count = engine._model.forward, iter(range(passes))

    def failing(*arguments, **named):
        if next(count, None) is None:
            monkeypatch.setattr(engine._model, "forward", forward)
            raise RuntimeError("the memory is full")
        return forward(*arguments, **named)

    monkeypatch.setattr(engine._model, "forward", failing)


def running_batches() -> int:
    return sum("_run_generation_loop" in thread.name for thread in threading.enumerate())


async def test_a_batch_that_breaks_down_fails_its_requests_and_the_next_works(engines, monkeypatch):
    engine = engines()
    break_after(3, monkeypatch, engine)
    outcomes = await soon(
        asyncio.gather(*(engine.generate(PROMPT, Sampling(20)) for _ in range(5)), return_exceptions=True)
    )
    for error in outcomes:
        assert isinstance(error, PolicyFailed)
        assert error.manner is Manner.CRASHED
        assert "the memory is full" in str(error)
    said = await soon(engine.generate(PROMPT, Sampling(20, temperature=0)))
    assert said.ids == Plain(0).greedy(PROMPT, 20)


async def test_after_a_breakdown_all_who_try_again_share_one_batch(engines, monkeypatch):
    engine, before = engines(), running_batches()
    break_after(3, monkeypatch, engine)

    async def twice() -> Generation:
        try:
            return await engine.generate(PROMPT, Sampling(20))
        except PolicyFailed:
            return await engine.generate(PROMPT, Sampling(300))

    replies = [asyncio.create_task(twice()) for _ in range(5)]
    await soon(asyncio.wait(replies, return_when=asyncio.FIRST_COMPLETED))
    assert running_batches() <= before + 1
    assert [len(reply.ids) for reply in await soon(asyncio.gather(*replies))] == [300] * 5


async def test_a_batch_that_can_not_start_fails_its_request_instead_of_forgetting_it(engines, monkeypatch):
    engine = engines()
    monkeypatch.setattr(engine_module, "WATCH_SECONDS", 0.1)
    with monkeypatch.context() as broken:
        broken.setattr(continuous_api, "PagedAttentionCache", None)
        with pytest.raises(PolicyFailed, match="broke down: 'NoneType' object is not callable"):
            await soon(engine.generate(PROMPT, Sampling(3)))
    assert len((await soon(engine.generate(PROMPT, Sampling(3)))).ids) == 3


# Attention over the packed batch


class Cache:
    """Gives back each sequence's past with its new keys, and rubbish behind the last."""

    def __init__(self, past: list[tuple[torch.Tensor, torch.Tensor]], new: list[int]):
        self._past, self._new = past, new

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, **_: object):
        whole = []
        for part, states in enumerate((key_states, value_states)):
            pieces = states[0].transpose(0, 1).split(self._new)
            rows = [row for past, piece in zip(self._past, pieces, strict=True) for row in (past[part], piece)]
            whole.append(torch.cat([*rows, torch.full_like(rows[0][:1].expand(3, -1, -1), 1e6)]))
        return whole


class Layer(torch.nn.Module):
    layer_idx = 0

    def __init__(self, groups: int):
        super().__init__()
        self.num_key_value_groups = groups


lengths = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5) | st.just(1)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(lengths=lengths, groups=st.sampled_from([1, 2]), seed=st.integers(0, 99))
def test_packed_attention_is_attention_under_the_block_causal_mask(lengths, groups, seed):
    draw = torch.Generator().manual_seed(seed)
    past = [tuple(torch.randn(old, 2, 8, generator=draw) for _ in range(2)) for old, _ in lengths]
    new = [count for _, count in lengths]
    query = torch.randn(1, 2 * groups, sum(new), 8, generator=draw)
    key, value = (torch.randn(1, 2, sum(new), 8, generator=draw) for _ in range(2))
    cache = Cache(past, new)
    starts_q = torch.tensor([0, *new]).cumsum(0)
    starts_k = torch.tensor([0, *(old + count for old, count in lengths)]).cumsum(0)
    indices = {"read_index": None, "write_index": None, "cu_seq_lens_q": starts_q, "cu_seq_lens_k": starts_k}
    packed, _ = packed_attention(Layer(groups), query, key, value, None, scaling=0.3, cache=cache, **indices)

    keys, values = (whole[:-3].transpose(0, 1).unsqueeze(0) for whole in cache.update(key, value))
    mask = torch.zeros(sum(new), int(starts_k[-1]), dtype=torch.bool)
    for sequence, (old, count) in enumerate(lengths):
        for row in range(count):
            begin = int(starts_k[sequence])
            mask[int(starts_q[sequence]) + row, begin : begin + old + row + 1] = True
    plain = scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=0.3, enable_gqa=groups > 1)
    torch.testing.assert_close(packed, plain.transpose(1, 2))
