"""The part of the configuration tree that says how a run is measured and who is told. Imports no torch."""

from typing import Literal

from pydantic import Field

from elocution.config.strict import StrictConfig

__all__ = ["EvalConfig", "LogConfig"]


class EvalConfig(StrictConfig):
    """The held-out measurement."""

    judge: str = "pocketsphinx-open"
    """Recogniser that listens; must not be the one in the reward."""
    judge_path: str = ""
    """Checkpoint folder of `judge`, where it needs one; it runs on `reward.devices`."""
    sentences: int = Field(default=256, ge=1)
    """Held-out sentences, the first of the file."""
    temperature: float = Field(default=1.0, gt=0, le=10)
    """Softmax temperature of the held-out completions."""
    every: int = Field(default=0, ge=0)
    """Steps between evaluations; 0 means before and after the run only."""
    on_collapse: Literal["ignore", "warn", "stop", "roll_back"] = "stop"
    """What a run does if an evaluation within it finds the policy collapsing, or gaming its reward: not look, say so, stop
    with a checkpoint, or once go back to `best` at a lower learning rate and then stop; docs/evaluation.md has the monitors."""
    rollback_lr_factor: float = Field(default=0.5, gt=0, le=1)
    """With `roll_back`: what the learning rates are multiplied by from then on."""
    bootstrap_samples: int = Field(default=2000, ge=100, le=100_000)
    """Resamples behind the 95 % interval."""
    probe_sentences: int = Field(default=8, ge=0)
    """Held-out sentences whose audio is kept, the first of the file."""
    seeds: int = Field(default=3, ge=1, le=100)
    """Completions of each item in `elocution eval`, each with a seed of its own; below 3 no difference is claimed."""
    voices: bool = True
    """In `elocution eval`, speak in the voice of an item's prompt, where the set has one."""
    speaker: str = ""
    """Speaker encoder that compares voices, in `elocution eval` and as a guard of a run with `every`: a name of the table in
    docs/rewards.md, or `module:Class`; empty measures no likeness. Should not be the one in the reward; as a guard it must not."""
    speaker_path: str = ""
    """Checkpoint folder of `speaker`, where it needs one."""
    quality: str = ""
    """In `elocution eval`, model that rates quality: distillmos, dnsmos, or `module:Class`; empty measures none."""
    simplifier: Literal["opencc", "zhconv", "none"] = "opencc"
    """What brings Chinese transcripts to simplified script under the rules of seed-tts-eval: OpenCC; zhconv, as the public
    scorer does, if it is installed; or nothing, for transcripts that were converted before they were saved."""
    sets: dict[str, str] = Field(default={})
    """Evaluation sets by names of your own, for `elocution eval --set-name`: files or folders."""


class LogConfig(StrictConfig):
    """Experiment trackers that get what a run records; docs/report.md."""

    to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = Field(default=(), strict=False)
    """Trackers, each an extra of the same name; empty for none. The run directory holds everything in any case."""
    project: str = Field(default="elocution", min_length=1)
    """Project that the run belongs to, with wandb and trackio."""
    audio: bool = True
    """Pass on clips: the held-out sentences that are kept, and the best and worst completion of each step."""
    offline: bool = True
    """With wandb: write files in the run directory, for `wandb sync`, and send nothing."""
