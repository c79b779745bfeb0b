"""Peak memory and time of the output layer, forward and backward: log-probs and exact KL in tiles, and log-probs plainly.

Plain computes all logits of the whole vocabulary in fp32, then log-softmax and gather, as most trainers do. Each runs in a
process of its own; memory is the growth of its peak resident size. At LLaSA's size plain does not fit into the memory of a
laptop, so it is measured on fewer tokens and scaled, which is exact for the logits and generous for the rest.
"""

import argparse
import json
import time

import torch
from measuring import describe_machine, measure_apart
from torch import Tensor

from elocution.grpo.exact_kl import exact_kl
from elocution.grpo.logprobs import selected_logprobs
from elocution.train.recorder import peak_memory_mib

VOCABULARY, LEGAL, WIDTH = 193_800, 65_537, 2048
SUBJECTS = {"plain": "log-probs, plain", "tiled": "log-probs, tiled", "kl": "exact KL, tiled"}


def random_layer(tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    hidden = torch.randn(tokens, WIDTH, generator=generator).bfloat16()
    # Made in place: what is made on the way would raise the peak before the measurement begins.
    return hidden, torch.empty(VOCABULARY, WIDTH, dtype=torch.bfloat16).normal_(std=0.02, generator=generator)


def measure(subject: str, tokens: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    hidden, head = random_layer(tokens, generator)
    reference = random_layer(tokens, generator) if subject == "kl" else None
    hidden.requires_grad_()
    head.requires_grad_()
    # As in the released tokenizer: the stop id, two ids that are never drawn, the codes.
    first_code = VOCABULARY - LEGAL + 1
    legal_ids = torch.cat([torch.tensor([first_code - 3]), torch.arange(first_code, VOCABULARY)])
    targets = torch.randint(LEGAL, (tokens,), generator=generator)
    before = peak_memory_mib()
    started, worked = time.perf_counter(), time.process_time()
    if subject == "plain":
        found = torch.log_softmax((hidden @ head.T).float(), dim=-1).gather(1, legal_ids[targets][:, None])
    elif reference is None:
        found, _ = selected_logprobs(hidden, head, targets, temperature=1.0, legal_ids=legal_ids)
    else:
        found = exact_kl(hidden, head, *reference, temperature=1.0, legal_ids=legal_ids)
    found.sum().backward()
    seconds, processor_s = time.perf_counter() - started, time.process_time() - worked
    return {"mib": peak_memory_mib() - before, "seconds": seconds, "processor_s": processor_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--plain-tokens", type=int, default=1000)
    parser.add_argument("--subject", choices=SUBJECTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.subject:
        print(json.dumps(measure(options.subject, options.tokens)))
        return
    print(describe_machine())
    print(
        f"vocabulary {VOCABULARY}, {LEGAL} legal ids, width {WIDTH}, bf16, {options.tokens} tokens; forward and backward"
    )
    rows = {}
    for subject, title in SUBJECTS.items():
        tokens = options.plain_tokens if subject == "plain" else options.tokens
        row = measure_apart(__file__, "--subject", subject, "--tokens", str(tokens))
        scale = options.tokens / tokens
        note = f" ({row['mib']:.0f} MiB measured on {tokens} tokens)" if scale != 1 else ""
        row = rows[subject] = {key: value * scale for key, value in row.items()}
        print(
            f"  {title:<17} peak extra memory {row['mib']:7.0f} MiB   {row['seconds']:6.1f} s, "
            f"{row['processor_s']:6.1f} s of processor time{note}"
        )
    print(f"  tiled log-probs take 1/{rows['plain']['mib'] / rows['tiled']['mib']:.0f} of the memory of plain ones")


if __name__ == "__main__":
    main()
