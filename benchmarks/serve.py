"""The reward server under load against the same models called directly, and the cost of everything around a scorer.

64 clients ask for a minute without a pause; half of the direct calls come before it and half after, so that both meet the same load
of the machine, and each answer is compared with the direct one. Then 512 clips and a scorer that sleeps. Fails if an answer is wrong, lost or
crossed, or a bound is not met. Nothing is remembered between requests.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import torch
from measuring import describe_machine
from sleeping_reward import SLEEP_S

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.config.load import load_config
from elocution.config.tree import RewardConfig
from elocution.data.prompts import load_prompts
from elocution.policies.llasa import LlasaPolicy
from elocution.rewards import load_reward
from elocution.rollout.speak import Speaker
from elocution.rollout.torch_engine import TorchEngine
from elocution.serve.metrics import RewardMetrics
from elocution.serve.scoring import Clip, ClipScorer, Verdict
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Utterance

WORKERS, CLIENTS, PROMPTS, READINGS = 2, 64, 32, 8
LEAST_SHARE = 0.85
SLEEPING_CLIPS, SLEEPING_WORKERS, MOST_OF_IDEAL = 512, 16, 1.2
MODEL = "token2wav_asr"
CODEC = load_codec("tiny", resolve_path("builtin:tiny-codec"))


def speak_clips() -> list[Clip]:
    """Distinct readings by the tiny checkpoint."""
    policy = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    prompts = load_prompts(
        resolve_path("builtin:tiny-train"), languages=["en"], on_bad_row="stop", check_text=policy.check_text
    ).utterances[:PROMPTS]
    engine = TorchEngine(policy, temperature=1.0, batch_size=128)
    engine.publish(0)
    speaker = Speaker(policy, engine, CODEC, max_codes_per_char=4.0, min_codes=40)
    groups = speaker.speak(prompts, [[(index, sibling) for sibling in range(READINGS)] for index in range(PROMPTS)])
    readings = {
        (group.utterance.text, rollout.codes.tobytes()): rollout
        for group in groups
        for rollout in group.rollouts
        if rollout.outcome is Outcome.SPEECH
    }
    return [
        Clip(text, "en", rollout.codes, len(rollout.codes) / CODEC.frame_rate)
        for (text, _), rollout in readings.items()
    ]


@contextmanager
def server(*settings: str) -> Iterator[str]:
    """The URL of a server process."""
    overrides = [word for setting in ("reward_server.cache_entries=0", *settings) for word in ("--set", setting)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-m", "elocution", "serve", "rewards", "--port", "0", *overrides]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        found = next((found for line in process.stdout if (found := re.search(r"at (http://\S+)", line))), None)
        if found is None:
            raise SystemExit("the server did not start")
        try:
            yield found[1]
        finally:
            process.send_signal(signal.SIGTERM)


@dataclass
class Load:
    """What the clients saw; an answer stands with the index of its clip."""

    latencies_s: list[float] = field(default_factory=list)
    answers: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    spent_s: float = 0.0


def ask(client: httpx2.Client, url: str, number: int, clip: Clip) -> dict[str, Any]:
    codes = np.asarray(clip.sound)[:, 0].tolist()
    body = {
        "id": str(number),
        "inputs": [
            {"name": "TOKENS", "shape": [1, len(codes)], "datatype": "INT32", "data": [codes]},
            {"name": "TOKEN_LENS", "shape": [1, 1], "datatype": "INT32", "data": [[len(codes)]]},
            {"name": "GT_TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [[clip.text]]},
        ],
        "outputs": [{"name": name} for name in ("VALUES", "TRANSCRIPTS", "STATUS")],
    }
    response = client.post(f"{url}/v2/models/{MODEL}/infer", content=json.dumps(body))
    response.raise_for_status()
    answer = response.json()
    return {"id": answer["id"]} | {output["name"]: output["data"][0] for output in answer["outputs"]}


def score_directly(scorer: ClipScorer, clips: Sequence[Clip]) -> tuple[list[Verdict], float]:
    """The verdicts in one batch, and the seconds that they took."""
    started = time.perf_counter()
    return scorer(clips), time.perf_counter() - started


def load_server(url: str, clips: Sequence[Clip], seconds: float, load: Load) -> None:
    """Adds to `load` what `CLIENTS` clients see that each send one clip after the other, until all have ended."""
    lock, numbers = threading.Lock(), count()
    client = httpx2.Client(timeout=600, limits=httpx2.Limits(max_connections=CLIENTS), trust_env=False)
    started = time.perf_counter()

    def run() -> None:
        while time.perf_counter() - started < seconds:
            number = next(numbers)
            index = number % len(clips)
            asked = time.perf_counter()
            try:
                answer = ask(client, url, number, clips[index])
            except (httpx2.HTTPError, ValueError, KeyError) as error:
                with lock:
                    load.lost.append(f"{number}: {error}")
                continue
            if answer.pop("id") != str(number):
                answer["crossed"] = True
            with lock:
                load.latencies_s.append(time.perf_counter() - asked)
                load.answers.append((index, answer))

    threads = [threading.Thread(target=run) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.close()
    load.spent_s += time.perf_counter() - started


def bench_load(seconds: float) -> list[str]:
    """Prints the comparison; returns what is not as it must be."""
    clips, load = speak_clips(), Load()
    config = load_config(None, [f"reward.workers={WORKERS}"])
    with server(f"reward.workers={WORKERS}") as url, load_reward(config.reward) as reward:
        scorer = ClipScorer(reward, CODEC, RewardMetrics())
        scorer(clips[: 2 * WORKERS])  # the processes have started
        half = len(clips) // 2
        first, first_s = score_directly(scorer, clips[:half])
        load_server(url, clips, seconds, load)
        second, second_s = score_directly(scorer, clips[half:])
    verdicts, direct_s = [*first, *second], first_s + second_s
    wrong = [
        f"{answer} instead of {verdicts[index]}" for index, answer in load.answers if answer != _wanted(verdicts[index])
    ]
    direct = sum(clip.duration_s for clip in clips) / direct_s
    served = sum(clips[index].duration_s for index, _ in load.answers) / load.spent_s
    p50, p99 = np.quantile(load.latencies_s, [0.5, 0.99])
    print(f"{CLIENTS} clients, {len(clips)} distinct clips, {WORKERS} scoring processes, {load.spent_s:.0f} s")
    print(f"  directly, in batches    {direct:6.1f} s of audio a second")
    print(f"  served                  {served:6.1f}   {served / direct:.2f}x (at least {LEAST_SHARE})")
    print(f"  answers                 {len(load.answers)}, wrong or crossed {len(wrong)}, lost {len(load.lost)}")
    print(f"  latency                 median {p50:.2f} s, p99 {p99:.2f} s\n")
    problems = [*wrong[:3], *load.lost[:3]]
    if served < LEAST_SHARE * direct:
        problems.append(f"throughput is {served / direct:.2f} of the direct one, at least {LEAST_SHARE} is wanted")
    return problems


def _wanted(verdict: Verdict) -> dict[str, Any]:
    score = verdict.score
    return {"VALUES": score.value, "TRANSCRIPTS": score.transcript, "STATUS": str(verdict.status)}


def bench_sleeping() -> list[str]:
    """Prints the comparison; returns what is not as it must be."""
    ideal = SLEEPING_CLIPS / SLEEPING_WORKERS * SLEEP_S
    completion = Completion(np.zeros((0, 1), np.int64), np.zeros((0, 1), np.float32), FinishReason.STOP, 0)
    generator = np.random.default_rng(0)
    rollouts = [
        Rollout(
            Utterance(str(index), "one"),
            completion,
            np.zeros((1, 1), np.int64),
            Audio((0.1 * generator.standard_normal(16_000 + 250 * (index % 64))).astype(np.float32), 16_000),
            Outcome.SPEECH,
        )
        for index in range(SLEEPING_CLIPS)
    ]
    untested = {"self_test": {"audio": ""}}
    with server(
        "reward.type=sleeping_reward:SleepingReward", f"reward.workers={SLEEPING_WORKERS}", 'reward.self_test.audio=""'
    ) as url:
        config = RewardConfig.model_validate({"type": "remote", "remote": {"urls": [url]}, **untested})
        with load_reward(config) as reward:
            for _ in range(3):  # every process has started
                reward(rollouts[: 4 * SLEEPING_WORKERS])
            started = time.perf_counter()
            scores = reward(rollouts)
            spent = time.perf_counter() - started
    print(
        f"{SLEEPING_CLIPS} clips, a scorer that sleeps {SLEEP_S} s, {SLEEPING_WORKERS} of them, through client and server"
    )
    print(f"  ideal                   {ideal:6.2f} s")
    print(f"  measured                {spent:6.2f} s   {spent / ideal:.2f}x (at most {MOST_OF_IDEAL})")
    problems = [f"a clip has the score {score}" for score in scores if score.value != 1.0][:3]
    if spent > MOST_OF_IDEAL * ideal:
        problems.append(
            f"{SLEEPING_CLIPS} clips took {spent / ideal:.2f} of the ideal, at most {MOST_OF_IDEAL} is wanted"
        )
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the clients ask")
    parser.add_argument("--only", choices=["load", "sleeping"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine("fastapi", "uvicorn", "pocketsphinx") + "\n")
    problems = [] if options.only == "sleeping" else bench_load(options.seconds)
    problems += [] if options.only == "load" else bench_sleeping()
    for problem in problems:
        print(f"problem: {problem}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
