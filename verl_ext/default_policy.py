"""The default policy: a Qwen2 model small enough to learn on two CPU cores, with a tokenizer of its own.

It is an ordinary Hugging Face folder, so whatever loads a model by path loads this one. It knows nothing: its weights
are drawn from the seed, and supervised fine-tuning has to come before reinforcement learning. The folder appears under
its name only when it is complete.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from agentgym_rl.errors import ConfigurationError

CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""

_PAD, _END_OF_TURN = "<|endoftext|>", "<|im_end|>"
_SPECIAL = [_PAD, "<|im_start|>", _END_OF_TURN]
_HEADS, _KEY_VALUE_HEADS = 4, 2
_SMALLEST_VOCABULARY = 256 + len(_SPECIAL)


def make_default_policy(
    path: str | Path,
    texts: Iterable[str],
    hidden_size: int = 64,
    layers: int = 2,
    init_std: float = 0.1,
    vocab_size: int = 512,
    max_tokens: int = 4096,
    seed: int = 0,
) -> Path:
    """Make the policy and save it as a Hugging Face folder.

    Args:
        path: the folder to make; it must not exist.
        texts: what the tokenizer learns from: the environment's observations and actions.
        hidden_size: a multiple of 8; 64 and 128 learn within minutes on a CPU.
        layers: number of transformer layers.
        init_std: standard deviation of every weight matrix. So small a model learns twice as fast with more than the
            library's 0.02: 0.1 at a hidden size of 64, 0.06 at 128.
        vocab_size: most tokens that the vocabulary may have, the 256 bytes and 3 special tokens among them.
        max_tokens: longest conversation, in tokens.
        seed: of the weights.

    Raises:
        ConfigurationError: the folder exists, there are no texts, or a size can't work.
    """
    path = Path(path)
    if path.exists():
        raise ConfigurationError(f"{path} exists already; remove it or choose another path")
    if hidden_size < 8 or hidden_size % 8:
        raise ConfigurationError(f"hidden_size must be a multiple of 8 above 0; given: {hidden_size}")
    if vocab_size < _SMALLEST_VOCABULARY:
        raise ConfigurationError(f"vocab_size must be at least {_SMALLEST_VOCABULARY}; given: {vocab_size}")
    tokenizer = _trained_tokenizer(texts, vocab_size)
    model = _initialised_model(tokenizer, hidden_size, layers, init_std, max_tokens, seed)
    _save(path, tokenizer, model)
    return path


def _trained_tokenizer(texts: Iterable[str], vocab_size: int) -> Qwen2Tokenizer:
    """Byte-level BPE behind Qwen2's own normalizer and pre-tokenizer.

    `AutoTokenizer` puts those two in front of any `qwen2` vocabulary when it loads one, whatever was saved; a
    vocabulary learnt behind others would hold tokens that never come up.
    """
    texts = list(texts)
    if not any(texts):
        raise ConfigurationError("the tokenizer of the default policy needs texts to learn from; given: none")
    own = Qwen2Tokenizer().backend_tokenizer
    backend = Tokenizer(models.BPE())
    backend.normalizer, backend.pre_tokenizer = own.normalizer, own.pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer = Qwen2Tokenizer(
        vocab=backend.get_vocab(),
        merges=_merges(backend),
        eos_token=_END_OF_TURN,
        pad_token=_PAD,
        extra_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = CHATML
    return tokenizer


def _merges(backend: Tokenizer) -> list[tuple[str, str]]:
    """The merges in the order in which they were learnt; only the tokenizer's JSON has them."""
    return [tuple(merge) for merge in json.loads(backend.to_str())["model"]["merges"]]


def _initialised_model(
    tokenizer: Qwen2Tokenizer, hidden_size: int, layers: int, init_std: float, max_tokens: int, seed: int
) -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=-(-hidden_size * 8 // 3 // 16) * 16,
        num_hidden_layers=layers,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KEY_VALUE_HEADS,
        max_position_embeddings=max_tokens,
        initializer_range=init_std,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    return model


def _save(path: Path, tokenizer: Qwen2Tokenizer, model: Qwen2ForCausalLM) -> None:
    """Write the folder beside its name and then give it the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        tokenizer.save_pretrained(unfinished)
        model.save_pretrained(unfinished)
        os.rename(unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
