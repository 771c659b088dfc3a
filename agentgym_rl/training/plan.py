"""A training plan: stages in their order, read from YAML, with every reference resolved before anything runs.

    variables: {seed: 0, train: data/train.parquet}   # {seed} and {train} in values below; `--set` replaces one
    policy: models/start                              # where training begins
    stages:
      - {name: imitate, kind: sft, config: sft.yaml, data: demonstrations.parquet, steps: 90}
      - rounds: 2                                     # the stages below, twice
        stages:
          - {name: learn, kind: grpo, config: grpo.yaml, train: "{train}", validation: "{train}", steps: 60}
          - {name: play, kind: sample, tasks: "{train}", episodes: 4, seed: "{round}"}
          - {name: best, kind: select, trajectories: "{play}/trajectories.jsonl", top: 1}

Besides variables, a value may hold `{policy}`, the newest trained policy before this stage; `{out}`, this stage's
folder; `{round}`, from 1, inside of a block of rounds; and the name of an earlier stage, for its newest folder. The
kinds of stages and their fields are in `stages.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from agentgym_rl.errors import ConfigurationError, DataError, did_you_mean, require_allowed_keys
from agentgym_rl.training.fields import defaults, fill, require_fields
from agentgym_rl.training.names import Names
from agentgym_rl.training.references import resolve_variables, substitute
from agentgym_rl.training.stages import KINDS, Work


@dataclass(frozen=True)
class Stage:
    """One step of a plan."""

    name: str
    """Unique; in a block of rounds it reads `round-1/NAME`."""
    kind: str
    folder: Path
    work: Work
    command: tuple[str, ...]
    """The ordinary command that does it."""


@dataclass(frozen=True)
class Plan:
    """Stages in their order; each has its folder in the plan's."""

    folder: Path
    stages: tuple[Stage, ...]


def read_plan(path: str | Path, folder: str | Path, settings: Mapping[str, str] | None = None) -> Plan:
    """Read a plan.

    Args:
        path: the YAML file.
        folder: where everything goes.
        settings: values that replace those of variables.

    Raises:
        DataError: there is no such file, or it is no YAML.
        ConfigurationError: anything in it that can't work; names the stage.
    """
    content = _load(path)
    require_allowed_keys(content, ("variables", "policy", "stages"), f"the plan {path}")
    known = resolve_variables(_variables(content, settings or {}))
    entries = list(_entries(content.get("stages"), known))
    start = content.get("policy")
    names = Names(known, [entry.name for entry in entries], start and substitute(start, known, "policy"))
    folder = Path(folder).absolute()
    stages = tuple(_stage(entry, folder, names) for entry in entries)
    _require_unique([stage.name for stage in stages])
    return Plan(folder, stages)


class _Entry(NamedTuple):
    """A stage as it is written."""

    name: str
    given: Mapping[str, Any]
    """Its kind and fields."""
    round: int | None
    """None: outside of a block of rounds."""


@dataclass(frozen=True)
class _Rounds:
    """A block of stages that is repeated."""

    rounds: int


def _load(path: str | Path) -> Mapping[str, Any]:
    import yaml

    try:
        return _mapping(yaml.safe_load(Path(path).read_text(encoding="utf-8")), f"the plan {path}")
    except FileNotFoundError as error:
        raise DataError(f"there is no plan {path}") from error
    except yaml.YAMLError as error:
        raise DataError(f"{path} is no YAML: {error}") from error


def _variables(content: Mapping[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
    variables = _mapping(content.get("variables") or {}, "variables")
    for name in settings:
        if name not in variables:
            raise ConfigurationError(f"the plan has no variable {name!r}; {did_you_mean(name, variables)}")
    return {**variables, **settings}


def _entries(stages: Any, known: Mapping[str, str]) -> Iterator[_Entry]:
    """Every stage, those of a block of rounds as often as they are repeated."""
    for given in _mappings(stages, "stages"):
        if "rounds" not in given:
            yield _entry(given, None)
            continue
        where = "a block of rounds"
        require_allowed_keys(given, ("rounds", "stages"), where)
        rounds = fill(_Rounds, {"rounds": substitute(given["rounds"], known, where)}, where).rounds
        if rounds < 1:
            raise ConfigurationError(f"rounds must be at least 1; given: {rounds}")
        inner = _mappings(given.get("stages"), "the stages of a block of rounds")
        yield from (_entry(stage, number) for number in range(1, rounds + 1) for stage in inner)


def _entry(given: Mapping[str, Any], round_number: int | None) -> _Entry:
    if "name" not in given:
        raise ConfigurationError(f"every stage needs a name; given: {', '.join(given) or 'nothing'}")
    rest = {key: value for key, value in given.items() if key != "name"}
    return _Entry(str(given["name"]), rest, round_number)


def _stage(entry: _Entry, root: Path, names: Names) -> Stage:
    full_name = entry.name if entry.round is None else f"round-{entry.round}/{entry.name}"
    folder, where = root / full_name, f"stage {full_name!r}"
    kind = str(entry.given.get("kind"))
    work = _work(entry, kind, names.known(folder, entry.round), names, where)
    try:
        command = tuple(work.make_command(folder))
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from error
    names.passed(entry.name, folder, work.policy_in(folder))
    return Stage(full_name, kind, folder, work, command)


def _work(entry: _Entry, kind: str, known: Mapping[str, str], names: Names, where: str) -> Work:
    """The fields of a stage, its references resolved."""
    if kind not in KINDS:
        raise ConfigurationError(f"{where}: there is no kind {kind!r}; {did_you_mean(kind, KINDS)}")
    given = {key: value for key, value in entry.given.items() if key != "kind"}
    require_fields(KINDS[kind], given, where)
    written = {**defaults(KINDS[kind]), **given}
    return fill(KINDS[kind], {key: substitute(v, known, where, names.why_not) for key, v in written.items()}, where)


def _require_unique(names: list[str]) -> None:
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise ConfigurationError(f"{count} stages are called {name!r}")


def _mapping(given: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{what} must be a mapping; given: {given!r}")
    return given


def _mappings(given: Any, what: str) -> list[Mapping[str, Any]]:
    if not isinstance(given, list) or not given:
        raise ConfigurationError(f"{what} must be a list with at least one stage; given: {given!r}")
    return [_mapping(stage, "a stage") for stage in given]
