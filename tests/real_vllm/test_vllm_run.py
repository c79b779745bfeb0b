"""`elocution train` with a real vLLM server."""

from pathlib import Path

import httpx2
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

from elocution.cli.main import app
from elocution.config.tree import ServerConfig
from elocution.policies.llasa import LlasaPolicy
from elocution.rollout.launch import LaunchedServer
from elocution.rollout.vllm_launch import vllm_launch
from elocution.testing.run_directory import read_rows
from elocution.types import Utterance


@pytest.mark.parametrize(("strategy", "rank"), [("full", 0), ("delta", 4)])
def test_s44_s62_a_run_samples_with_proven_weights_that_are_the_learners(
    tiny_server: LaunchedServer, tmp_path: Path, strategy: str, rank: int
) -> None:
    settings = (
        *("rollout.engine='vllm'", f"rollout.server.urls=['{tiny_server.url}']", f"model.lora.rank={rank}"),
        *(f"rollout.sync.strategy='{strategy}'", "train.rules=[]", "train.steps=3", "train.prompts_per_step=2"),
        *("rollout.group_size=4", "eval.sentences=2", "eval.probe_sentences=0", "eval.every=1", "reward.workers=1"),
    )
    run = tmp_path / "run"
    done = CliRunner().invoke(
        app, ["train", "--output-dir", str(run), *(part for each in settings for part in ("--set", each))]
    )
    assert done.exit_code == 0, done.exception
    rows = read_rows(run / "metrics.jsonl")
    assert [row["sync/policy_version"] for row in rows] == [row["policy_version"] - 1 for row in rows]
    for row in rows:
        assert row["sync/probe_difference_max_nats"] < 1e-4
        assert row["sync/followed_share"] == pytest.approx(1, abs=0.05)
        assert row["ratio/max_deviation"] is None or row["ratio/max_deviation"] < 1e-3
        assert row["lag/max_versions"] == 0
    assert [row["policy_version"] for row in read_rows(run / "evaluations.jsonl")] == [0, 1, 2, 3]


def test_rollouts_from_vllm_reach_the_reward_of_those_in_process_within_noise(
    tiny_server: LaunchedServer, tmp_path: Path
) -> None:
    settings = (
        *("train.rules=[]", "train.steps=5", "train.prompts_per_step=8", "rollout.group_size=8", "reward.workers=2"),
        *("eval.sentences=2", "eval.probe_sentences=0", "eval.every=5"),
    )
    means = []
    for name, engine in (
        ("torch", ()),
        ("vllm", ("rollout.engine='vllm'", f"rollout.server.urls=['{tiny_server.url}']")),
    ):
        given = (part for each in (*settings, *engine) for part in ("--set", each))
        done = CliRunner().invoke(app, ["train", "--output-dir", str(tmp_path / name), *given])
        assert done.exit_code == 0, done.exception
        means.append(np.array([row["reward/mean"] for row in read_rows(tmp_path / name / "metrics.jsonl")]))
    # The same prompts in both, so the steps are pairs; between drawings of them the mean of a step spreads by `noise`.
    difference = means[1] - means[0]
    noise = difference.std(ddof=1) / np.sqrt(len(difference))
    assert 0 < noise < 0.05
    assert abs(difference.mean()) < 4.6 * noise  # Student's t with 4 degrees of freedom, 1 %


def test_the_best_weights_of_a_run_are_a_folder_that_vllm_serves(settings: ServerConfig, tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = (
        *("train.steps=2", "train.prompts_per_step=2", "rollout.group_size=4", "reward.workers=1"),
        *("eval.sentences=2", "eval.probe_sentences=0", "eval.every=0"),
    )
    done = CliRunner().invoke(
        app, ["train", "--output-dir", str(run), *(part for one in given for part in ("--set", one))]
    )
    assert done.exit_code == 0, done.exception
    model = run / "best" / "model"
    prompt = LlasaPolicy.from_pretrained(model).prompt_ids(Utterance("u", "the doctor visited the school"))
    launch = vllm_launch(settings, model_path=model, precision="fp32", lora_rank=0, on_cpu=True)
    with LaunchedServer(launch, tmp_path / "server.log") as server:
        served = httpx2.get(f"{server.url}/v1/models").json()["data"][0]["id"]
        asked = {
            "model": served,
            "prompt": prompt.tolist(),
            "max_tokens": 30,
            "temperature": 0,
            "return_token_ids": True,
        }
        answer = httpx2.post(f"{server.url}/v1/completions", json=asked, timeout=120)
    answer.raise_for_status()
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    greedy = plain.generate(torch.as_tensor(prompt)[None], do_sample=False, max_new_tokens=30)[0, len(prompt) :]
    assert answer.json()["choices"][0]["token_ids"] == greedy.tolist()
