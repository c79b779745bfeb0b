"""Generation against transformers' own on the same model and batch; then where a training step's time goes.

Prints tables with the machine and the versions. Ratios are measured side by side in one run, each the best of four.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from measuring import describe_machine

from elocution.assets import resolve_path
from elocution.config.load import load_config
from elocution.data.prompts import load_prompts
from elocution.policies.base import IncrementalModel
from elocution.policies.choices import Choices
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.padding import pad_prompts
from elocution.rollout.base import RolloutRequest
from elocution.rollout.speak import token_budget
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.run_directory import read_rows
from elocution.train.loop import train
from elocution.types import Utterance

ROWS, GROUP, REPEATS, STEPS = 64, 8, 4, 3
WAITING = 256
SHORTEST, LONGEST = 32, 256


class EndlessPolicy(LlasaPolicy):
    """Goes on until the budget of ids is used up."""

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset({-1})


class CountingPolicy(LlasaPolicy):
    """Counts the steps of the rows drawn with it."""

    steps = 0

    def incremental(self, *, compiled: bool = True) -> IncrementalModel:
        model = super().incremental(compiled=compiled)
        step = model.step

        def counted(ids: torch.Tensor) -> Choices:
            self.steps += 1
            return step(ids)

        model.step = counted  # type: ignore[method-assign]
        return model


@dataclass(frozen=True)
class Rate:
    """Useful tokens per second of the clock, and per second of processor time."""

    wall: float
    cpu: float


def best_rates(*subjects: Callable[[], int]) -> list[Rate]:
    """The best of `REPEATS` of each subject, which returns its useful tokens; they take turns, so that noise meets all."""
    rates: list[list[Rate]] = [[] for _ in subjects]
    for _ in range(REPEATS):
        for subject, own in zip(subjects, rates, strict=True):
            started, cpu_started = time.perf_counter(), time.process_time()
            tokens = subject()
            own.append(Rate(tokens / (time.perf_counter() - started), tokens / (time.process_time() - cpu_started)))
    return [Rate(max(rate.wall for rate in own), max(rate.cpu for rate in own)) for own in rates]


def bench_generation() -> None:
    policy = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    policy.model.eval()
    utterances = load_prompts(
        resolve_path("builtin:tiny-train"), languages=["en"], on_bad_row="stop", check_text=policy.check_text
    ).utterances[: WAITING // GROUP]
    requests = [request_of(policy, utterance, index) for index, utterance in enumerate(utterances)]
    few = requests[: ROWS // GROUP]
    compare_generation("lengths as the policy ends them", policy, few)
    lengths = np.exp(np.random.default_rng(0).uniform(np.log(SHORTEST), np.log(LONGEST), ROWS)).round().astype(int)
    compare_generation(
        f"lengths of {SHORTEST} to {LONGEST}, log-uniform, {lengths.mean():.0f} on average",
        EndlessPolicy(policy.llama, policy.tokenizer),
        [RolloutRequest(few[row // GROUP].prompt_ids, ((row,),), int(length)) for row, length in enumerate(lengths)],
    )
    count_steps(policy, requests)


def request_of(policy: LlasaPolicy, utterance: Utterance, index: int) -> RolloutRequest:
    """What a training run would ask for."""
    config = load_config(None).rollout
    budget = token_budget(utterance.text, max_codes_per_char=config.max_codes_per_char, min_codes=config.min_codes)
    return RolloutRequest(policy.prompt_ids(utterance), tuple((index, sibling) for sibling in range(GROUP)), budget)


def compare_generation(title: str, policy: LlasaPolicy, requests: Sequence[RolloutRequest]) -> None:
    """Ours against transformers' own, each drawing all rows in one batch."""
    engine = TorchEngine(policy, temperature=1.0, batch_size=ROWS)
    rows = [request for request in requests for _ in request.seeds]
    budgets = torch.tensor([request.max_new for request in rows])
    ids, mask = pad_prompts([request.prompt_ids for request in rows])
    stops = policy.stop_ids & set(policy.legal_ids.tolist())

    def ours() -> int:
        engine.publish(0)  # fusing the weights is part of the price
        return sum(len(completion.ids) for group in engine.generate(requests) for completion in group)

    def theirs() -> int:
        torch.manual_seed(0)
        with torch.inference_mode():
            out = policy.llama.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                top_k=0,
                top_p=1.0,
                max_new_tokens=int(budgets.max()),
                eos_token_id=sorted(stops) or None,
                pad_token_id=policy.tokenizer.pad_token_id,
            )
        kept = (out[:, ids.shape[1] :] != policy.tokenizer.pad_token_id).sum(dim=1)
        return int(torch.minimum(kept, budgets).sum())

    theirs_rate, ours_rate = best_rates(theirs, ours)
    print(f"generation, {len(rows)} sequences, {title}; tokens kept per second of the clock, and of processor time")
    print(f"  transformers.generate   {theirs_rate.wall:8.0f}          {theirs_rate.cpu:8.0f}")
    print(
        f"  elocution               {ours_rate.wall:8.0f}   {ours_rate.wall / theirs_rate.wall:.1f}x   "
        f"{ours_rate.cpu:8.0f}   {ours_rate.cpu / theirs_rate.cpu:.1f}x\n"
    )


def count_steps(policy: LlasaPolicy, requests: Sequence[RolloutRequest]) -> None:
    """How full a batch of `ROWS` is while more completions than that go through it; counts, no times."""
    counting = CountingPolicy(policy.llama, policy.tokenizer)
    engine = TorchEngine(counting, temperature=1.0, batch_size=ROWS)
    engine.publish(0)
    groups = zip(requests, engine.generate(requests), strict=True)
    drawn = [(request.max_new, len(completion.ids)) for request, group in groups for completion in group]
    lengths = [length for _, length in sorted(drawn, key=lambda each: -each[0])]
    tokens = sum(lengths) - len(lengths)  # the first of each comes of its prompt
    in_batches = sum(max(lengths[start : start + ROWS]) - 1 for start in range(0, len(lengths), ROWS))
    print(
        f"{len(lengths)} completions of {min(lengths)} to {max(lengths)} ids, {ROWS} at a time: steps, and rows in use"
    )
    for title, steps in (("one batch after the other", in_batches), ("with replacement", counting.steps)):
        print(f"  {title:<25} {steps:6} {tokens / (steps * ROWS):10.0%}")
    print()


def bench_step() -> None:
    config = load_config(None, [f"train.steps={STEPS}", "eval.sentences=8", "train.save_every=1000"])
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train(config, run)
        rows = read_rows(run / "metrics.jsonl")[1:]
    completions = config.train.prompts_per_step * config.rollout.group_size
    print(f"a training step of {completions} completions, mean of steps 2 to {STEPS}")
    for stage in ("rollout", "decode", "score", "update", "step"):
        mean = sum(row[f"time/{stage}_s"] for row in rows) / len(rows)
        print(f"  {stage:<10} {mean:6.2f} s")
    print(f"  peak memory of the main process {rows[-1]['memory/peak_mib']:.0f} MiB")


def main() -> None:
    print(describe_machine("transformers") + "\n")
    bench_generation()
    bench_step()


if __name__ == "__main__":
    main()
