"""A MOSS checkpoint with random weights, its codec and prompts in voices, on the disk."""

import json
from pathlib import Path

import numpy as np
import torch

from elocution.codecs.mel import MelSettings
from elocution.codecs.tiny_residual import TinyResidualCodec
from elocution.testing.policies import small_moss

__all__ = ["SMALL_MOSS", "moss_settings", "write_moss"]

SMALL_MOSS = (
    *("model.family='moss'", "model.lora={rank = 8, alpha = 16.0}", "codec.type='tiny-residual'"),
    *("rollout.group_size=4", "rollout.min_codes=20", "rollout.max_codes_per_char=1.0"),
    *("algorithm.channel_weights='1,32'", "algorithm.kl_coef=0.01", "train.rules=[]", "train.learning_rate=1e-3"),
    *("train.prompts_per_step=2", "train.save_every=1", "reward.type='dying_parts:DyingReward'"),
    *("eval.sentences=2", "eval.probe_sentences=0", "eval.judge='dying_parts:Mute'"),
)


def write_moss(folder: Path) -> None:
    """`moss`, `codec`, `train.jsonl` and `held_out.jsonl` in `folder`, the same each time."""
    small_moss().save_pretrained(str(folder / "moss"))
    books = 0.5 * torch.randn(4, 16, 640, generator=torch.Generator().manual_seed(0))
    books[0] -= 4.0
    TinyResidualCodec(books, MelSettings(frames_per_code=8)).save_pretrained(folder / "codec")
    texts = [f"{a} {b} {c}" for a in ("one", "mary", "the") for b in ("three", "painted") for c in ("house", "one")]
    for name, part in (("train", texts[:9]), ("held_out", texts[9:])):
        rows = [
            {
                "text": text,
                "emotion": "three",
                "prompt_text": "one",
                "prompt_codes": np.random.default_rng(number).integers(0, 16, (4, 4)).tolist(),
            }
            for number, text in enumerate(part)
        ]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def moss_settings(folder: Path) -> list[str]:
    """Settings of a small run of what `write_moss` wrote."""
    return [
        *SMALL_MOSS,
        *(f"model.path='{folder}/moss'", f"codec.path='{folder}/codec'"),
        *(f"data.train='{folder}/train.jsonl'", f"data.held_out='{folder}/held_out.jsonl'"),
    ]
