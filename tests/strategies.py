"""Hypothesis strategies that several tests draw from."""

from hypothesis import strategies as st

from agentgym_rl.messages import Message, ToolCall
from agentgym_rl.policy import Reply, SampledTokens
from agentgym_rl.task import Task
from agentgym_rl.trajectory import Failure, StopReason, Trajectory, Turn

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)

numbers = st.floats(allow_nan=False)
flat = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | numbers | st.text(), max_size=2)
calls = st.lists(st.builds(ToolCall, st.text(), flat, st.text()), max_size=2).map(tuple)
roles = st.sampled_from(["system", "user", "assistant", "tool"])
messages = st.builds(Message, roles, st.text(), calls, st.none() | st.text())
tokens = st.lists(st.tuples(st.integers(0, 10**6), numbers), max_size=4).map(
    lambda pairs: SampledTokens(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))
)
replies = st.builds(Reply, messages, st.booleans(), st.none() | tokens)
several = st.lists(messages, max_size=2).map(tuple)
turns = st.builds(Turn, replies, several, numbers, st.booleans(), numbers, numbers, flat)
trajectories = st.builds(
    Trajectory,
    st.builds(Task, id=st.text(min_size=1), environment=st.just("stairs"), arguments=flat, seed=st.integers()),
    several,
    st.lists(turns, max_size=2).map(tuple),
    st.sampled_from(StopReason),
    st.none() | st.booleans(),
    st.none() | st.builds(Failure, st.text(), st.text(), st.text()),
    st.text(),
)
