"""How the project is installed. Lint and test settings are in pyproject.toml."""

from setuptools import find_namespace_packages, setup

# The tasks that a seed gives may differ between versions of minigrid; 3.2.0 needs Python 3.11.
BABYAI = ["minigrid==3.2.0; python_version >= '3.11'", "minigrid==3.1.0; python_version < '3.11'"]
SERVER = ["openai>=1.50"]
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
        "jinja2>=3.1",
        "psutil>=5.9",
        "pyarrow>=19.0.0",
        "pyyaml>=6.0",
        "rich>=13.7",
        "scipy>=1.11",
        "typer>=0.12",
    ],
    extras_require={
        "agentgym": AGENTGYM,
        "babyai": BABYAI,
        "server": SERVER,
        # verl pins torch and the engine that belong together (torch 2.11.0 with vllm 0.24.0 or sglang 0.5.12).
        "vllm": ["verl[vllm]==0.9.1"],
        "sglang": ["verl[sglang]==0.9.1"],
        # Linters are pinned: a new version must not turn a green commit red.
        "test": [
            *AGENTGYM,
            *BABYAI,
            *SERVER,
            "hypothesis>=6.100",
            "mypy==2.4.1",
            "pytest>=8.2",
            "pytest-asyncio>=0.24",
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
