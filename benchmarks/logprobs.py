"""Peak memory and time of the output layer's log-probs, forward and backward: fused, and plain as most trainers do it.

Plain computes all logits of the whole vocabulary in fp32, then log-softmax and gather. Each runs in a process of its own;
memory is the growth of its peak resident size. At LLaSA's size plain does not fit into the memory of a laptop, so it is
measured on fewer tokens and scaled, which is exact for the logits and generous for the rest.
"""

import argparse
import json
import time

import torch
from measuring import describe_machine, measure_apart

from elocution.grpo.logprobs import selected_logprobs
from elocution.train.recorder import peak_memory_mib

VOCABULARY, LEGAL, WIDTH = 193_800, 65_537, 2048


def measure(subject: str, tokens: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, WIDTH, generator=generator).bfloat16().requires_grad_()
    # Made in place: what is made on the way would raise the peak before the measurement begins.
    head = torch.empty(VOCABULARY, WIDTH, dtype=torch.bfloat16).normal_(std=0.02, generator=generator)
    first = VOCABULARY - LEGAL
    targets = torch.randint(LEGAL, (tokens,), generator=generator)
    weight = (head if subject == "plain" else head[first:]).requires_grad_()
    before = peak_memory_mib()
    started = time.perf_counter()
    if subject == "plain":
        logprobs = torch.log_softmax((hidden @ weight.T).float(), dim=-1)
        logprobs.gather(1, targets[:, None] + first).sum().backward()
    else:
        selected_logprobs(hidden, weight, targets, temperature=1.0)[0].sum().backward()
    seconds = time.perf_counter() - started
    return {"mib": peak_memory_mib() - before, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--plain-tokens", type=int, default=1000)
    parser.add_argument("--subject", choices=["plain", "fused"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.subject:
        print(json.dumps(measure(options.subject, options.tokens)))
        return
    print(describe_machine())
    print(
        f"vocabulary {VOCABULARY}, {LEGAL} legal ids, width {WIDTH}, bf16, {options.tokens} tokens; forward and backward"
    )
    rows = {}
    for subject, tokens in (("plain", options.plain_tokens), ("fused", options.tokens)):
        rows[subject] = measure_apart(__file__, "--subject", subject, "--tokens", str(tokens))
        scale = options.tokens / tokens
        note = f" ({rows[subject]['mib']:.0f} MiB measured on {tokens} tokens)" if scale != 1 else ""
        rows[subject] = {key: value * scale for key, value in rows[subject].items()}
        print(
            f"  {subject:<6} peak extra memory {rows[subject]['mib']:7.0f} MiB   {rows[subject]['seconds']:6.1f} s{note}"
        )
    print(f"  fused takes 1/{rows['plain']['mib'] / rows['fused']['mib']:.0f} of the memory")


if __name__ == "__main__":
    main()
