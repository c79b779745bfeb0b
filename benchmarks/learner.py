"""One optimiser step on the same model, completions and loss: elocution, a plain padded implementation, and TRL.

Each subject runs in a process of its own, so that peak memory is its own; gradients are compared, and must agree.
Rates are ratios of the best of a few rounds, in each of which the subjects take turns; CPU time is the process's own,
the clock's also counts what else the machine did. TRL comes with the extra `dev`.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from measuring import describe_machine, measure_apart
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from elocution.grpo.losses import LossSettings
from elocution.policies.base import PolicyBatch
from elocution.policies.packing import enable_packing, packed_states
from elocution.train.batch import LearnerBatch
from elocution.train.learner import Learner, LearnerSettings
from elocution.train.recorder import peak_memory_mib

GROUP = 8
CLIP_LOW, CLIP_HIGH, MAX_NORM, RATE = 0.2, 0.28, 1.0, 1e-5
SIZES = {"3m": (192, 6, 6, 2, 512, 2224), "26m": (512, 8, 8, 4, 1408, 8192)}
WORKLOADS = {"text": (44, 60), "voice": (300, 250), "long-voice": (600, 250)}  # longest prompt and completion, ids


def build_model(size: str) -> LlamaForCausalLM:
    torch.manual_seed(0)
    width, layers, heads, kv_heads, inner, vocabulary = SIZES[size]
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=inner,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            tie_word_embeddings=True,
            max_position_embeddings=1024,
        )
    )


def build_batches(model: LlamaForCausalLM, workload: str, prompts: int) -> list[LearnerBatch]:
    """One group to a micro-batch; completions of half to full length."""
    longest_prompt, longest = WORKLOADS[workload]
    generator = torch.Generator().manual_seed(1)
    vocabulary = model.config.vocab_size
    batches = []
    for _ in range(prompts):
        prompt_length = int(torch.randint(longest_prompt * 3 // 4, longest_prompt + 1, (1,), generator=generator))
        lengths = torch.randint(longest // 2, longest + 1, (GROUP,), generator=generator)
        mask = (torch.arange(int(lengths.max())) < lengths[:, None])[..., None]
        policy = PolicyBatch(
            prompt_ids=torch.randint(vocabulary, (1, prompt_length), generator=generator),
            prompt_mask=torch.ones(1, prompt_length, dtype=torch.long),
            row_prompt=torch.zeros(GROUP, dtype=torch.long),
            completion_ids=torch.randint(vocabulary, tuple(mask.shape), generator=generator),
            completion_mask=mask,
        )
        with torch.no_grad():
            old = plain_logprobs(model, policy)
        # A little off-policy, so that the ratios and the clip do something.
        noise = 0.1 * torch.randn(old.shape, generator=generator)
        advantages = torch.randn(GROUP, generator=generator)
        drawn_at = (old + noise)[..., None]
        batches.append(LearnerBatch(policy, advantages, torch.ones(GROUP, dtype=torch.bool), drawn_at, drawn_at))
    return batches


def plain_logprobs(model: LlamaForCausalLM, batch: PolicyBatch) -> Tensor:
    """Prompts repeated, everything padded, all logits at once. Shapes: [B, T]."""
    ids = torch.cat([batch.prompt_ids[batch.row_prompt], batch.completion_ids[..., 0]], dim=1)
    mask = torch.cat([batch.prompt_mask[batch.row_prompt], batch.completion_mask[..., 0].long()], dim=1)
    positions = (mask.cumsum(dim=1) - 1).clamp_min(0)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
    predicted = torch.log_softmax(logits[:, batch.prompt_ids.shape[1] - 1 : -1].float(), dim=-1)
    return predicted.gather(-1, batch.completion_ids).squeeze(-1)


Step = Callable[[], None]


def plain_step(model: LlamaForCausalLM, batches: Sequence[LearnerBatch]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    total = sum(batch.num_tokens for batch in batches)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for batch in batches:
            mask = batch.policy.completion_mask[..., 0]
            ratio = (plain_logprobs(model, batch.policy) - batch.old_logprobs[..., 0]).exp()
            advantages = batch.advantages[:, None]
            bounded = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
            loss = -(torch.minimum(ratio * advantages, bounded * advantages) * mask).sum() / total
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()

    return step


@dataclass
class WholeVocabulary:
    """A policy that may draw any id, for comparison with trainers that know no legal ids."""

    model: LlamaForCausalLM
    compute_dtype = torch.float32
    num_channels = 1
    legal_ids = torch.zeros(1, dtype=torch.long)  # one of them, for rows that fill up

    def logprobs(self, batch: PolicyBatch, *, temperature: float, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        states = packed_states(self.model.model, batch, self.model.get_output_embeddings().weight, legal_ids=None)
        return states.logprobs(temperature=temperature, entropy_grad=entropy_grad)


class NoReference:
    """Costs nothing: the others have no reference model either."""

    def logprobs(self, batch: PolicyBatch, *, temperature: float) -> tuple[Tensor, Tensor]:
        zeros = torch.zeros(batch.completion_mask.shape)
        return zeros, zeros


def elocution_step(model: LlamaForCausalLM, batches: Sequence[LearnerBatch]) -> Step:
    enable_packing(model)
    policy: Any = WholeVocabulary(model)
    learner = Learner(
        policy,
        NoReference(),
        torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0, fused=True),
        LearnerSettings(bounds=LossSettings(CLIP_LOW, CLIP_HIGH), max_grad_norm=MAX_NORM),
    )

    def step() -> None:
        learner.update(batches, on_policy=False)

    return step


def trl_step(model: LlamaForCausalLM, batches: Sequence[LearnerBatch]) -> Step:
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    class Given(GRPOTrainer):
        """Learns from the completions it is given."""

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            return generation_batch

    def unscored(completions: Any, **_: Any) -> list[float | None]:
        return [None] * len(completions)

    words = Tokenizer(models.WordLevel({"a": 0, "<e>": 1}, unk_token="a"))
    folder = tempfile.mkdtemp()
    trainer = Given(
        model=model,
        reward_funcs=unscored,
        args=GRPOConfig(
            output_dir=folder,
            loss_type="dapo",
            beta=0.0,
            epsilon=CLIP_LOW,
            epsilon_high=CLIP_HIGH,
            max_grad_norm=MAX_NORM,
            learning_rate=RATE,
            per_device_train_batch_size=GROUP,
            gradient_accumulation_steps=len(batches),
            num_generations=GROUP,
            use_cpu=True,
            bf16=False,
            activation_checkpointing=False,
            report_to=[],
        ),
        train_dataset=Dataset.from_dict({"prompt": ["a"]}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<e>", pad_token="<e>"),
    )
    trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = len(batches)
    wrapped = trainer.accelerator.prepare_model(trainer.model)
    optimizer = trainer.optimizer
    assert optimizer is not None
    total = torch.tensor(float(sum(batch.num_tokens for batch in batches)))
    inputs = [
        {
            "prompt_ids": batch.policy.prompt_ids[batch.policy.row_prompt],
            "prompt_mask": batch.policy.prompt_mask[batch.policy.row_prompt],
            "completion_ids": batch.policy.completion_ids[..., 0],
            "completion_mask": batch.policy.completion_mask[..., 0].long(),
            "old_per_token_logps": batch.old_logprobs[..., 0],
            "advantages": batch.advantages,
            "num_items_in_batch": total,
        }
        for batch in batches
    ]

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for rows in inputs:
            trainer.training_step(wrapped, rows, total)  # type: ignore[no-untyped-call]
        trainer.accelerator.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()

    return step


SUBJECTS = {"plain": plain_step, "TRL": trl_step, "elocution": elocution_step}


def measure(subject: str, size: str, workload: str, prompts: int, gradient_path: Path) -> dict[str, Any]:
    """One step after one to warm up: its seconds of CPU and of the clock, and the peak memory of both."""
    model = build_model(size)
    batches = build_batches(model, workload, prompts)
    step = SUBJECTS[subject](model, batches)
    before = peak_memory_mib()
    step()
    torch.save(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]), gradient_path)
    started, started_cpu = time.perf_counter(), time.process_time()
    step()
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
    return {"cpu_seconds": cpu_seconds, "seconds": seconds, "extra_mib": peak_memory_mib() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="26m", help="parameters of the model")
    parser.add_argument("--workload", choices=WORKLOADS, nargs="+", default=list(WORKLOADS))
    parser.add_argument("--prompts", type=int, default=2, help="groups of a step, 8 completions each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--subject", choices=SUBJECTS, help=argparse.SUPPRESS)
    parser.add_argument("--gradient", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.subject:
        workload = options.workload[0]
        row = measure(options.subject, options.size, workload, options.prompts, options.gradient)
        print(json.dumps(row))
        return
    print(describe_machine("transformers", "trl"))
    for workload in options.workload:
        prompt, completion = WORKLOADS[workload]
        print(f"\n{options.size} parameters, {options.prompts} groups of {GROUP}, prompts of at most {prompt}, "
              f"completions of {completion // 2} to {completion}; one optimiser step")  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            rounds: list[dict[str, dict[str, float]]] = []
            gradients: dict[str, Tensor] = {}
            for _ in range(options.rounds):
                rounds.append({})
                for subject in SUBJECTS:
                    path = Path(folder) / f"{subject}.pt"
                    rounds[-1][subject] = measure_apart(
                        __file__,
                        *("--subject", subject, "--gradient", str(path), "--size", options.size),
                        *("--workload", workload, "--prompts", str(options.prompts)),
                    )
                    gradients[subject] = torch.load(path)
        rows = {
            subject: {key: min(row[subject][key] for row in rounds) for key in rounds[0][subject]}
            for subject in SUBJECTS
        }
        for subject, row in rows.items():
            off = (gradients[subject] - gradients["plain"]).norm() / gradients["plain"].norm()
            print(
                f"  {subject:<10} {row['cpu_seconds']:7.2f} s of CPU, {row['seconds']:7.2f} s   "
                f"{rows['plain']['cpu_seconds'] / row['cpu_seconds']:4.1f}x plain   "
                f"peak memory {row['extra_mib']:6.0f} MiB   gradient {off:.0e} off plain"
            )
            if off > 1e-3:
                raise SystemExit(f"{subject} computes another gradient: the comparison is void")
        ratios = [f"{rows['TRL'][key] / rows['elocution'][key]:.2f}x" for key in ("cpu_seconds", "seconds")]
        print(f"  elocution is {ratios[0]} TRL by CPU time, {ratios[1]} by the clock")
        by_round = [f"{row['TRL']['cpu_seconds'] / row['elocution']['cpu_seconds']:.2f}" for row in rounds]
        print(f"  by CPU time in each round: {', '.join(by_round)}")


if __name__ == "__main__":
    main()
