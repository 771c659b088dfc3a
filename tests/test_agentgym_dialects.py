"""The answers of AgentGym's own servers are read right, in the shapes that they have."""

import pytest
from doubles_agentgym import Recorded, item, played, running

from agentgym_rl.environment import StepResult
from agentgym_rl.environments import registry
from agentgym_rl.environments.agentgym.dialects import DIALECTS
from agentgym_rl.messages import assistant, user

TOOL = (
    # agentenv-tool/agentenv_movie/movie_server.py and its four siblings; reward is that so far (movie_env.py, update)
    {
        "/create": [0],
        "/reset": ["Now new trial starts.\nGoal."],
        "/step": [
            {"observation": "Observation: {}\nGive me one action.", "reward": 0.5, "done": False},
            {"observation": "Observation: 3", "reward": 1.0, "done": True},
        ],
    },
    [("POST /create", {"id": 0}), ("POST /reset", {"env_idx": 0, "id": 3})],
    ("POST /step", {"env_idx": 0, "action": "Thought: t\n\nAction: go"}),
    "Now new trial starts.\nGoal.",
    [StepResult.going_on("Observation: {}\nGive me one action.", 0.5), StepResult.at_end(0.5, True, "Observation: 3")],
)

RECORDED = {
    # dialect: answers by route, what is asked up to the first observation, the first step asked for, what the policy
    # sees first, what the steps are read as
    "alfworld": (  # agentenv-alfworld/agentenv_alfworld/env_wrapper.py
        {
            "/create": [{"id": 4}],
            "/reset": [
                {
                    "id": 4,
                    "observation": "You are in a room.",
                    "available_actions": ["look", "go to bed 1"],
                    "task_type": "p/t",
                }
            ],
            "/step": [
                {"observation": "A bed.", "reward": 0.0, "available_actions": ["look"], "done": False},
                {"observation": "Won.", "reward": 1.0, "available_actions": [], "done": True},
            ],
        },
        [("POST /create", None), ("POST /reset", {"id": 4, "game": 3, "world_type": "Text"})],
        ("POST /step", {"id": 4, "action": "go"}),
        "You are in a room.\nAvailable actions: look, go to bed 1",
        [
            StepResult.going_on("A bed.\nAvailable actions: look"),
            StepResult.at_end(1.0, True, "Won.\nAvailable actions: "),
        ],
    ),
    "babyai": (  # agentenv-babyai/agentenv_babyai/environment.py
        {
            "/create": [{"id": 0}],
            "/reset": [{"observation": "Your goal: go", "reward": 0, "score": 0, "deleted": False, "done": False}],
            "/step": [
                {"observation": "Wall.", "reward": 0, "score": 0, "done": False},
                {"observation": "The task is completed.", "reward": 0.859375, "score": 0.859375, "done": True},
            ],
        },
        [("POST /create", None), ("POST /reset", {"id": 0, "data_idx": 3})],
        ("POST /step", {"id": 0, "action": "go"}),
        "Your goal: go",
        [StepResult.going_on("Wall."), StepResult.at_end(0.859375, True, "The task is completed.")],
    ),
    "sciworld": (  # agentenv-sciworld/agentenv_sciworld: recorded from that server with scienceworld 1.2.3, shortened
        {
            "/create": [{"id": 0}],
            "/reset": [
                {
                    "task_name": "boil",
                    "var_num": 10,
                    "task_description": "Your task is to boil chocolate.",
                    "observation": "This room is called the art studio. In it, you see: \n\tthe agent",
                    "reward": 0,
                    "score": 0,
                    "deleted": False,
                    "done": False,
                }
            ],
            "/step": [
                {"observation": "In your inventory, you see:\n\tan orange", "reward": 0, "score": 0, "done": False},
                {"observation": "You focus on the orange.", "reward": -100, "score": -100, "done": True},
            ],
        },
        [("POST /create", None), ("POST /reset", {"id": 0, "data_idx": 3})],
        ("POST /step", {"id": 0, "action": "go"}),
        "Your task is to boil chocolate.\nThis room is called the art studio. In it, you see: \n\tthe agent",
        [
            StepResult.going_on("In your inventory, you see:\n\tan orange"),
            StepResult.at_end(-100.0, False, "You focus on the orange."),
        ],
    ),
    "textcraft": (  # agentenv-textcraft/agentenv_textcraft/env_wrapper.py
        {
            "/create": [{"id": 2, "observation": "Goal: craft a.", "done": False, "reward": 0}],
            "/reset": [{"id": 2, "observation": "Goal: craft b.", "done": False, "reward": 0}],
            "/step": [
                {"observation": "Got 1 log", "reward": 0, "done": False},
                {"observation": "Crafted 1 minecraft:b", "reward": 1, "done": True},
            ],
        },
        [("POST /create", {}), ("POST /reset", {"id": 2, "data_idx": 3})],
        ("POST /step", {"id": 2, "action": "go"}),
        "Goal: craft b.",
        [StepResult.going_on("Got 1 log"), StepResult.at_end(1.0, True, "Crafted 1 minecraft:b")],
    ),
    "maze": (  # agentenv-lmrlgym/agentenv_lmrlgym/maze/environment.py
        {
            "/maze/create": [{"id": 0}],
            "/maze/reset": [{"observation": "The goal is at position 8, 6."}],
            "/maze/step": [
                {"observation": "There are walls.", "reward": -1.0, "done": False},
                {"observation": "Success", "reward": 0.0, "done": True},
            ],
        },
        [("POST /maze/create", None), ("POST /maze/reset", {"id": 0, "game": 3})],
        ("POST /maze/step", {"id": 0, "action": "go"}),
        "The goal is at position 8, 6.",
        [StepResult.going_on("There are walls.", -1.0), StepResult.at_end(0.0, True, "Success")],
    ),
    "wordle": (  # agentenv-lmrlgym/agentenv_lmrlgym/wordle/environment.py
        {
            "/wordle/create": [{"id": 0}],
            "/wordle/reset": [{"id": 0, "observation": "Let's start Wordle!"}],
            "/wordle/step": [
                {"observation": "b y g g b", "reward": 0, "done": False},
                {"observation": "b y g g b", "reward": 0, "done": True},
            ],
        },
        [("POST /wordle/create", None), ("POST /wordle/reset", {"id": 0, "seed": 3})],
        ("POST /wordle/step", {"id": 0, "action": "go"}),
        "Let's start Wordle!",
        [StepResult.going_on("b y g g b"), StepResult.at_end(0.0, False, "b y g g b")],
    ),
    "webshop": (  # agentenv-webshop/agentenv_webshop/server.py, model.py
        {
            "/create": [48950075],
            "/reset": [["", None]],
            "/observation": ["WebShop [SEP] Search"],
            "/step": [
                {"state": "Page 1", "reward": 0.0, "done": False, "info": None},
                {"state": "Thank you", "reward": 0.75, "done": True, "info": None},
            ],
        },
        [
            ("POST /create", None),
            ("POST /reset", {"env_idx": 48950075, "session_id": 3}),
            ("GET /observation", "env_idx=48950075"),
        ],
        ("POST /step", {"env_idx": 48950075, "action": "go"}),
        "WebShop [SEP] Search",
        [StepResult.going_on("Page 1"), StepResult.at_end(0.75, False, "Thank you")],
    ),
    "sqlgym": (  # agentenv-sqlgym/agentenv_sqlgym/server.py
        {
            "/create": [489575],
            "/reset": [["How many rows?", None]],
            "/step": [
                {"state": "no such table: t", "reward": 0.0, "done": False, "info": None},
                {"state": "[(3,)]", "reward": 1.0, "done": True, "info": {"ground_truth": [[3]]}},
            ],
        },
        [("POST /create", None), ("POST /reset", {"env_idx": 489575, "item_id": 3})],
        ("POST /step", {"env_idx": 489575, "action": "Thought: t\n\nAction: go"}),
        "How many rows?",
        [StepResult.going_on("no such table: t"), StepResult.at_end(1.0, True, "[(3,)]")],
    ),
    "webarena": (  # agentenv-webarena/agentenv_webarena/server.py
        {
            "/create": [{"env_idx": 0}],
            "/reset": [{"observation": "[4] RootWebArea"}],
            "/step": [
                {"observation": "OBJECTIVE", "reward": 0.0, "terminated": False, "truncated": False, "info": {}},
                {"observation": "OBJECTIVE", "reward": 0.0, "terminated": False, "truncated": True, "info": None},
            ],
        },
        [("POST /create", None), ("POST /reset", {"env_idx": 0, "idx": 3, "seed": 0})],
        ("POST /step", {"env_idx": 0, "action": "Thought: t\n\nAction: go"}),
        "[4] RootWebArea",
        [StepResult.going_on("OBJECTIVE"), StepResult.cut_off("OBJECTIVE")],
    ),
    "movie": TOOL,
    "weather": TOOL,
    "todo": TOOL,
    "sheet": TOOL,
    "academia": TOOL,
    "searchqa": (  # agentenv-searchqa/agentenv_searchqa/server.py (AgentGym-RL)
        {
            "/create": [0],
            "/reset": ["Question: who?"],
            "/step": [
                {"observation": "<information>x</information>", "reward": 0, "done": False, "info": None},
                {"observation": "Sorry, your answer is incorrect.", "reward": 0, "done": True, "info": None},
            ],
        },
        [("POST /create", {"id": 0}), ("POST /reset", {"env_idx": 0, "id": 3})],
        ("POST /step", {"env_idx": 0, "action": "Thought: t\n\nAction: go"}),
        "Question: who?",
        [
            StepResult.going_on("<information>x</information>"),
            StepResult.at_end(0.0, False, "Sorry, your answer is incorrect."),
        ],
    ),
}


def test_there_are_recorded_answers_of_every_dialect_but_our_own():
    assert set(RECORDED) | {"openmanus"} == set(DIALECTS)


@pytest.mark.parametrize("dialect", RECORDED)
async def test_the_answers_of_agentgyms_servers_are_read_right(dialect):
    answers, asked_first, step_asked, seen, results = RECORDED[dialect]
    server = Recorded(answers)
    with running(server) as address:
        async with registry.opened("agentgym") as environment:
            opening = await environment.reset(item(address, 3, dialect))
            asked = len(server.requests)
            steps = [await environment.step(assistant("Thought: t\n\nAction: go")) for _ in results]
            assert environment.instructions
    assert server.requests[:asked] == asked_first
    assert server.requests[asked] == step_asked
    assert (opening, steps) == ([user(seen)], results)


async def test_a_science_world_task_is_solved_by_its_score_and_not_by_its_last_reward():
    steps = [{"observation": "Hot.", "reward": 75, "score": 75, "done": False}]
    steps += [{"observation": "Boils.", "reward": 25, "score": 100, "done": True}]
    with running(Recorded({**RECORDED["sciworld"][0], "/step": steps})) as address:
        trajectory = await played(item(address, dialect="sciworld"), ["wait", "wait"])
    assert ([turn.reward for turn in trajectory.turns], trajectory.success) == ([75.0, 25.0], True)


async def test_an_error_with_status_200_of_a_real_server_fails_the_step():
    answers = {**RECORDED["babyai"][0], "/step": [{"error": "The task with environment 0 has finished."}]}
    with running(Recorded(answers)) as address:
        trajectory = await played(item(address), ["go"])
    assert trajectory.failure.cause == "environment_raised"
    assert trajectory.failure.message.endswith("/step: The task with environment 0 has finished.")
