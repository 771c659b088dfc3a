"""The recipe for Slurm, with doubles of `srun` and `scontrol` that run all on this machine: two real Ray nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TRAIN = ROOT / "recipes" / "slurm" / "train.sh"
SRUN = """#!/usr/bin/env bash
# Runs the command once a task; of the options only --ntasks matters here.
tasks=1
while [[ $1 == --* ]]; do
    [[ $1 == --ntasks=* ]] && tasks=${1#*=}
    shift
done
trap 'kill $(jobs -p)' TERM
for _ in $(seq "$tasks"); do "$@" & done
wait; wait
"""
SCONTROL = """#!/usr/bin/env bash
if [ "$1" = requeue ]; then echo "$2" >"$REQUEUED"; else printf 'n1\\nn2\\n'; fi
"""
REPORT = """
import os, sys, time, ray
ray.init(log_to_driver=False)
alive = [node for node in ray.nodes() if node["Alive"]]
print("alive", len(alive), "gpus", ray.cluster_resources()["GPU"], "told", *sys.argv[2:], flush=True)
print("metrics", os.environ["VERL_FILE_LOGGER_PATH"])
time.sleep(float(sys.argv[1]))
sys.exit(7)
"""


@pytest.fixture
def environment(tmp_path):
    """Of a job on two nodes without accelerators."""
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM_"))}
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:  # a socket's path is short
        mine = {"PATH": path, "PYTHONPATH": str(ROOT), "RAY_TMPDIR": short, "REQUEUED": str(tmp_path / "requeued")}
        yield {**kept, **job, **mine, "SLURM_CPUS_ON_NODE": "2", "VERL_FILE_LOGGER_PATH": "metrics.jsonl"}


def start(environment, tmp_path, *command):
    with open(tmp_path / "log", "w") as log:
        how = {"env": environment, "cwd": tmp_path, "stdout": log, "stderr": log, "start_new_session": True}
        return subprocess.Popen(["bash", str(TRAIN), *command], **how)


def end(job):
    """Whatever the job has left, the nodes of the cluster too: they are in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


@pytest.mark.slow
def test_a_command_finds_all_nodes_in_one_cluster_and_its_exit_code_is_the_jobs(environment, tmp_path):
    restarted = {**environment, "SLURM_RESTART_COUNT": "1"}
    job = start(restarted, tmp_path, sys.executable, "-c", REPORT, "0", "trainer.x=1")
    try:
        code = job.wait(180)
    finally:
        end(job)
    log = (tmp_path / "log").read_text()
    assert "alive 2 gpus 2.0 told trainer.x=1 trainer.nnodes=2 trainer.n_gpus_per_node=1" in log
    assert "metrics metrics.1.jsonl" in log  # beside those of the run before
    assert code == 7


@pytest.mark.slow
def test_a_job_whose_time_is_nearly_up_goes_back_into_the_queue_and_its_training_ends_with_it(environment, tmp_path):
    job = start(environment, tmp_path, sys.executable, "-c", REPORT, "600")
    try:
        deadline = time.monotonic() + 180
        while "alive 2" not in (tmp_path / "log").read_text():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.2)
        job.send_signal(signal.SIGUSR1)  # to the script alone, as `--signal=B:USR1` does
        while not (tmp_path / "requeued").exists():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.2)
        assert (tmp_path / "requeued").read_text().strip() == str(os.getpid())
    finally:
        end(job)


def test_outside_of_a_job_and_without_a_command_it_says_how_it_is_used(tmp_path):
    outside = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}

    def said(*command):
        return subprocess.run(["bash", str(TRAIN), *command], env=outside, capture_output=True, text=True)

    assert said("--help").returncode == 0
    assert said("--help").stdout == said().stdout
    assert said().returncode == 2
    assert "this runs as a Slurm job" in said("python").stderr
