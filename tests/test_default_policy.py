"""The default policy: what is saved is what is loaded, by path, with the ordinary Hugging Face calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym_rl.errors import ConfigurationError
from agentgym_rl.messages import assistant, user
from verl_ext import default_policy
from verl_ext.agent_loop.chat_tokens import ChatTokens
from verl_ext.default_policy import make_default_policy

TEXTS = ["you see a red ball 2 steps left\n\nand a wall", "Go to the red ball!", "<b>don't</b> turn  right (3x)"] * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_default_policy(tmp_path_factory.mktemp("policy") / "tiny", TEXTS, hidden_size=32)


@pytest.fixture(scope="module")
def loaded(folder):
    return AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)


@pytest.fixture(scope="module")
def unsaved():
    tokenizer = default_policy._trained_tokenizer(TEXTS, vocab_size=512)
    return tokenizer, default_policy._initialised_model(tokenizer, 32, 2, init_std=0.1, max_tokens=4096, seed=0)


@settings(deadline=None)
@given(text=st.one_of(st.text(), st.lists(st.sampled_from(TEXTS), max_size=3).map("  \n".join)))
def test_the_loaded_tokenizer_gives_the_ids_of_the_one_that_was_saved(loaded, unsaved, text):
    assert loaded[0].encode(text) == unsaved[0].encode(text)


def test_the_loaded_model_gives_the_logits_of_the_one_that_was_saved(loaded, unsaved):
    ids = torch.tensor([[5, 60, 261, 2, 7]])
    with torch.no_grad():
        assert torch.equal(loaded[1](ids).logits, unsaved[1].eval()(ids).logits)


def test_the_tokenizer_has_learnt_words_of_the_texts(loaded):
    tokenizer = loaded[0]
    assert 259 < len(tokenizer) <= 512
    assert tokenizer.tokenize("a red ball") == ["a", "Ġred", "Ġball"]


def test_every_token_that_was_learnt_comes_up_when_its_text_is_encoded(loaded):
    tokenizer = loaded[0]
    learnt = [token for token in tokenizer.get_vocab() if len(token) > 1 and token not in tokenizer.all_special_tokens]
    texts = [tokenizer.convert_tokens_to_string([token]) for token in learnt]
    assert len(learnt) > 40
    assert [tokenizer.tokenize(text) for text in texts] == [[token] for token in learnt]


def test_end_of_turn_ends_generation_and_padding_is_another_token(loaded):
    tokenizer, model = loaded
    end, pad = tokenizer.convert_tokens_to_ids("<|im_end|>"), tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert end != pad
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (end, pad)
    assert (model.config.eos_token_id, model.config.pad_token_id) == (end, pad)
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (end, pad)
    assert ChatTokens(tokenizer).stop_ids == {end}


def test_every_id_that_the_model_can_say_is_a_token(loaded):
    tokenizer, model = loaded
    assert model.config.vocab_size == len(tokenizer)
    assert model.get_output_embeddings().weight.shape == (len(tokenizer), 32)


def test_the_chat_template_marks_the_turns(loaded):
    chat = ChatTokens(loaded[0])
    ids = chat.render([user("a wall"), assistant("left")]).ids
    assert loaded[0].decode(ids) == "<|im_start|>user\na wall<|im_end|>\n<|im_start|>assistant\nleft<|im_end|>"


def test_the_weights_have_the_asked_for_spread_and_two_copies_of_the_embedding_are_one(loaded):
    model = loaded[1]
    assert model.model.layers[0].mlp.up_proj.weight.std().item() == pytest.approx(0.1, rel=0.1)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert model.dtype == torch.float32


def test_the_same_seed_gives_the_same_files_in_another_process_and_another_seed_does_not(folder, tmp_path):
    code = (
        "import sys; from verl_ext.default_policy import make_default_policy as make; "
        f"[make(sys.argv[1] + s, {TEXTS!r}, hidden_size=32, seed=int(s)) for s in '01']"
    )
    root = Path(default_policy.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", code, f"{tmp_path}/seed"], check=True, capture_output=True, env=environment)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "seed0" / name).read_bytes() == (folder / name).read_bytes()
    assert (tmp_path / "seed1" / "model.safetensors").read_bytes() != (folder / "model.safetensors").read_bytes()
    assert (tmp_path / "seed1" / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


def test_making_it_leaves_the_callers_randomness_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    make_default_policy(tmp_path / "tiny", TEXTS, hidden_size=32)
    assert torch.rand(1) == expected


def test_a_save_that_breaks_off_leaves_no_folder_behind(tmp_path, monkeypatch):
    def no_space(self, folder, **_):
        (Path(folder) / "half").write_text("half")
        raise OSError("no space left")

    monkeypatch.setattr(default_policy.Qwen2ForCausalLM, "save_pretrained", no_space)
    with pytest.raises(OSError, match="no space left"):
        make_default_policy(tmp_path / "tiny", TEXTS, hidden_size=32)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_size": 30}, "hidden_size must be a multiple of 8 above 0; given: 30"),
        ({"hidden_size": 0}, "hidden_size must be a multiple of 8 above 0; given: 0"),
        ({"vocab_size": 258}, "vocab_size must be at least 259; given: 258"),
        ({"texts": []}, "needs texts to learn from; given: none"),
        ({"texts": [""]}, "needs texts to learn from; given: none"),
    ],
)
def test_what_can_not_work_is_refused_before_anything_is_written(tmp_path, arguments, message):
    with pytest.raises(ConfigurationError) as error:
        make_default_policy(**{"path": tmp_path / "new" / "tiny", "texts": TEXTS, **arguments})
    assert message in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_never_overwritten(folder):
    with pytest.raises(ConfigurationError, match="exists already; remove it or choose another path"):
        make_default_policy(folder, TEXTS)
