"""What verl's clients call on the rollout server, without Ray."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym_rl.errors import ConfigurationError
from verl_ext.rollout.server import TransformersServer


@pytest.fixture
async def server(policy_folder):
    threads = torch.get_num_threads()
    made = TransformersServer(str(policy_folder), max_tokens_in_cache=512, max_model_len=40, seed=0)
    yield made
    await made.clear_kv_cache()
    torch.set_num_threads(threads)


async def test_a_reply_brings_ids_log_probs_and_the_version_of_the_weights(server, policy_folder):
    before = await server.generate([5, 6, 7], {"max_tokens": 4, "temperature": 1.0, "stop_token_ids": [600]}, "r")
    assert (len(before.token_ids), len(before.log_probs), before.stop_reason) == (4, 4, "completed")
    assert before.extra_fields == {"global_steps": None}
    weights = AutoModelForCausalLM.from_pretrained(policy_folder).state_dict()
    await server.update_weights(weights, 7)
    after = await server.generate([5, 6, 7], {"max_tokens": 4}, "r")
    assert after.extra_fields == {"global_steps": 7}


@pytest.mark.parametrize(("parameters", "count"), [({}, 37), ({"max_tokens": 900}, 37), ({"max_tokens": 5}, 5)])
async def test_a_reply_never_passes_the_longest_context(server, parameters, count):
    said = await server.generate([5, 6, 7], {**parameters, "stop_token_ids": [600]}, "r")
    assert len(said.token_ids) == count


async def test_without_stop_ids_the_folders_own_end_of_sequence_ends_a_reply(server, policy_folder):
    end = AutoTokenizer.from_pretrained(policy_folder).eos_token_id
    weights = AutoModelForCausalLM.from_pretrained(policy_folder).state_dict()
    # whatever was said, the end of sequence is now more likely to follow as anything else
    weights = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    del weights["lm_head.weight"]  # tied to the embedding
    weights["model.norm.weight"] += 1
    weights["model.embed_tokens.weight"][:, 0] = 1
    weights["model.embed_tokens.weight"][end, 0] = 2
    await server.update_weights(weights, None)
    said = await server.generate([5, 6, 7], {"temperature": 0}, "r")
    assert said.token_ids == [end]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"sampling_params": {"top_p": 0.9}},
            "samples from the whole distribution: top_p=1 and top_k=-1; given: 0.9, None",
        ),
        (
            {"sampling_params": {"top_k": 5}},
            "samples from the whole distribution: top_p=1 and top_k=-1; given: None, 5",
        ),
        ({"sampling_params": {}, "image_data": ["picture"]}, "serves text only"),
        (
            {"sampling_params": {}, "prompt_ids": [5] * 40},
            "a prompt of 40 tokens leaves no room for a reply: 40 in all",
        ),
    ],
)
async def test_what_it_can_not_serve_is_refused(server, arguments, message):
    with pytest.raises(ConfigurationError) as error:
        await server.generate(**{"prompt_ids": [5], "request_id": "r", **arguments})
    assert message in str(error.value)


async def test_an_abort_holds_requests_until_generation_resumes(server):
    await server.abort_all_requests()
    await server.resume_generation()
    assert (await server.generate([5], {"max_tokens": 1}, "r")).stop_reason == "completed"


def test_a_folder_that_names_no_end_of_sequence_is_refused(policy_folder, tmp_path):
    folder = shutil.copytree(policy_folder, tmp_path / "endless")
    configuration = json.loads((folder / "generation_config.json").read_text())
    del configuration["eos_token_id"]
    (folder / "generation_config.json").write_text(json.dumps(configuration))
    with pytest.raises(ConfigurationError, match="generation_config.json names no eos_token_id"):
        TransformersServer(str(folder), 512, 40, seed=0)
