"""Generation against transformers' own on the same model and batch; then where a training step's time goes.

Prints tables with the machine and the versions. Ratios are measured side by side in one run, each the best of three.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measuring import describe_machine

from elocution.assets import resolve_path
from elocution.config.load import load_config
from elocution.data.prompts import load_prompts
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.padding import pad_prompts
from elocution.rollout.base import RolloutRequest
from elocution.rollout.speak import token_budget
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.run_directory import read_rows
from elocution.train.loop import train

ROWS, GROUP, REPEATS, STEPS = 64, 8, 3, 3


def best_rate(generate: Callable[[], int]) -> float:
    """Useful tokens per second, the best of `REPEATS`."""
    rates = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        tokens = generate()
        rates.append(tokens / (time.perf_counter() - started))
    return max(rates)


def bench_generation() -> None:
    policy = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    policy.model.eval()
    prompts = load_prompts(
        resolve_path("builtin:tiny-train"), languages=["en"], on_bad_row="stop", check_text=policy.check_text
    ).utterances[: ROWS // GROUP]
    config = load_config(None).rollout
    budgets = [
        token_budget(u.text, max_codes_per_char=config.max_codes_per_char, min_codes=config.min_codes) for u in prompts
    ]
    engine = TorchEngine(policy, temperature=1.0, batch_size=ROWS)
    requests = [
        RolloutRequest(policy.prompt_ids(u), tuple((index, sibling) for sibling in range(GROUP)), budget)
        for index, (u, budget) in enumerate(zip(prompts, budgets, strict=True))
    ]
    ids, mask = pad_prompts([request.prompt_ids for request in requests])
    ids, mask = ids.repeat_interleave(GROUP, 0), mask.repeat_interleave(GROUP, 0)

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
                max_new_tokens=max(budgets),
                eos_token_id=policy.stop_id,
                pad_token_id=policy.tokenizer.pad_token_id,
            )
        drawn = out[:, ids.shape[1] :]
        return int((drawn != policy.tokenizer.pad_token_id).sum())

    theirs_rate, ours_rate = best_rate(theirs), best_rate(ours)
    print(f"generation, {ROWS} sequences of unequal length, {ROWS // GROUP} prompts, tokens kept per second")
    print(f"  transformers.generate   {theirs_rate:8.0f}")
    print(f"  elocution               {ours_rate:8.0f}   {ours_rate / theirs_rate:.1f}x\n")


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
