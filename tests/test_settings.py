"""The `agentgym` section of a training configuration."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from agentgym_rl.environments.chaos import Faults
from agentgym_rl.episode import Limits
from agentgym_rl.errors import ConfigurationError
from agentgym_rl.failure_policy import FailurePolicy
from agentgym_rl.truncation import Truncations
from verl_ext.agent_loop.history import History
from verl_ext.agent_loop.settings import Settings
from verl_ext.agent_loop.spares import Oversampling
from verl_ext.agent_loop.summary import Summary
from verl_ext.ray_pool_placement import Placement


def of(**section: object) -> Settings:
    return Settings.of(OmegaConf.create({"trainer": {}, "agentgym": section}))


@pytest.mark.parametrize("config", [{}, {"agentgym": None}, {"agentgym": {}}])
def test_without_a_section_everything_has_its_default(config):
    settings = Settings.of(OmegaConf.create(config))
    assert settings == Settings(
        rewards={"outcome": 1.0},
        limits=Limits(),
        turn_tokens=1024,
        history=History(keep_turns=None, rerender=False),
        horizon=None,
        truncations=Truncations("bootstrap", "bootstrap", "bootstrap", "exclude", "exclude"),
        oversampling=Oversampling(spares=0),
        concurrent_replies=None,
        failures=FailurePolicy(),
        chaos=Faults(),
        environment_slots=64,
        pool={},
        isolation="thread",
    )


def test_what_is_given_is_used_and_the_rest_keeps_its_default():
    settings = of(
        rewards={"environment": 0.5, "format": 2}, limits={"max_turns": 3}, turn_tokens=7, isolation="process"
    )
    assert settings == Settings({"environment": 0.5, "format": 2}, Limits(max_turns=3), 7, isolation="process")


def test_interpolations_are_resolved():
    config = OmegaConf.create({"data": {"n": 9}, "agentgym": {"turn_tokens": "${data.n}"}})
    assert Settings.of(config).turn_tokens == 9


def test_a_history_may_have_a_summary():
    settings = of(history={"keep_turns": 2, "summary": {"tokens": 9}})
    assert settings.history == History(keep_turns=2, summary=Summary(tokens=9))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"turn_token": 5}, "the section agentgym has no 'turn_token'; did you mean 'turn_tokens'?"),
        ({"limits": {"max_turn": 5}}, "the section agentgym.limits has no 'max_turn'; did you mean 'max_turns'?"),
        (
            {"history": {"keep_turns": 1, "summary": {"token": 9}}},
            "agentgym.history.summary has no 'token'; did you mean",
        ),
        ({"history": {"summary": {}}}, "set that, and not rerender; given: keep_turns None, rerender False"),
        ({"history": {"keep_turns": 1, "rerender": True, "summary": {}}}, "given: keep_turns 1, rerender True"),
        ({"history": {"keep_turns": 1, "summary": {"tokens": 0}}}, "summary.tokens must be at least 1; given: 0"),
        ({"history": {"keep_turns": 1, "summary": {"url": "http://h"}}}, "or neither; given: url 'http://h', model ''"),
        ({"limits": {"step_seconds": 0}}, "step_seconds must be above 0; given: 0"),
        ({"turn_tokens": 0}, "agentgym.turn_tokens must be at least 1; given: 0"),
        ({"isolation": "threads"}, "agentgym.isolation must be one of thread, process; given: 'threads'"),
        ({"rewards": {"outcom": 1.0}}, "no reward 'outcom'; did you mean 'outcome'?"),
        ({"rewards": {}}, "a reward needs at least one named function"),
        ({"rewards": {"outcome": "much"}}, "the weight of reward 'outcome' must be a finite number; given: 'much'"),
    ],
)
def test_what_can_not_work_is_named(section, message):
    with pytest.raises(ConfigurationError) as error:
        of(**section)
    assert message in str(error.value)


def test_chaos_is_read_and_its_faults_are_checked():
    assert of(chaos={"crash": 0.1}).chaos == Faults(crash=0.1)
    with pytest.raises(ConfigurationError, match="did you mean 'crash'"):
        of(chaos={"crahs": 0.1})


def test_a_placement_on_the_cluster_is_read_and_checked():
    assert of(pool={"babyai": {"actors": 2, "slots_per_actor": 8}}).pool == {
        "babyai": Placement(actors=2, slots_per_actor=8)
    }
    with pytest.raises(ConfigurationError, match=r"agentgym.pool.babyai has no 'actor'; did you mean 'actors'"):
        of(pool={"babyai": {"actor": 2}})
