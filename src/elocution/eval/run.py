"""An evaluation from start to end: clips are made and heard at the same time, in batches, by any number of processes.

Each process takes its share of what is not there yet; the first one writes the result when all clips are.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from elocution.audio import write_wav
from elocution.config.tree import RunConfig
from elocution.errors import DataError, EvaluationError
from elocution.eval.clips import ClipResult, judge_transcript
from elocution.eval.folder import EvaluationFolder
from elocution.eval.listening import EvalClip, Heard, check_judge, listener_factory
from elocution.eval.overlap import Overlap
from elocution.eval.sets import EvalSet
from elocution.eval.sets.base import name_some
from elocution.eval.simplifiers import load_simplifier
from elocution.eval.sources import ClipSource, Produced, Unit
from elocution.eval.summary import summarize
from elocution.rewards.base import Pending
from elocution.rewards.pool import ScoringPool
from elocution.text.normalize import NORMALIZER_VERSION
from elocution.text.seed_tts import SEED_TTS_VERSION
from elocution.train.environment import package_version, source_commit
from elocution.train.world import ALONE, World, failing_together, share

__all__ = ["Job", "describe_plan", "evaluate"]

FORMAT = 1
# What may change a number: recognisers, aligner, and what texts are read with.
_PACKAGES = (
    *("elocution", "torch", "transformers", "numpy", "pocketsphinx", "rapidfuzz", "zhon", "zhconv"),
    *("opencc-python-reimplemented", "pypinyin", "num2words", "whisper-normalizer"),
    *("faster-whisper", "sherpa-onnx", "resemblyzer", "speechbrain", "distillmos", "speechmos"),
)

Progress = Callable[[int, int], None]
"""Called as (clips scored by this process, clips that are its share)."""


@dataclass(frozen=True)
class Job:
    """What is evaluated, and as what it is known: `described` names the source, for example its path and digest.

    With `partial`, items that the source has not all clips of are left out and counted; else they are an error.
    """

    source: ClipSource
    described: Mapping[str, Any]
    eval_set: EvalSet
    overlap: Overlap
    partial: bool = False


def describe_plan(job: Job, config: RunConfig, *, draws: bool) -> dict[str, Any]:
    """What decides the numbers; two evaluations with the same plan give the same ones. `draws` says that a policy speaks."""
    sampler = {
        "engine": "torch",
        "temperature": config.eval.temperature,
        "run_seed": config.seed,
        "max_codes_per_char": config.rollout.max_codes_per_char,
        "min_codes": config.rollout.min_codes,
        "precision": config.model.precision,
        "voices": config.eval.voices,
    }
    return {
        "format": FORMAT,
        "source": dict(job.described),
        "set": {
            "name": job.eval_set.name,
            "kind": job.eval_set.kind,
            "digest": job.eval_set.digest,
            "items": len(job.eval_set.items),
            "languages": list(job.eval_set.languages),
        },
        "overlap": job.overlap.row(),
        "sampler": sampler if draws else None,
        "seeds": list(job.source.seeds),
        "recogniser": {"name": config.eval.judge, "path": config.eval.judge_path},
        "normalizers": {
            "spoken": NORMALIZER_VERSION,
            "seed_tts": SEED_TTS_VERSION,
            "simplifier": config.eval.simplifier,
        },
        "measures": {
            "speaker": config.eval.speaker,
            "speaker_path": config.eval.speaker_path,
            "quality": config.eval.quality,
        },
        "partial": job.partial,
    }


def evaluate(
    job: Job,
    config: RunConfig,
    path: Path,
    plan: Mapping[str, Any],
    *,
    world: World = ALONE,
    on_progress: Progress | None = None,
) -> dict[str, Any] | None:
    """Makes and scores every clip that the folder `path` lacks, and writes its result, which process 0 returns.

    Raises: DataError if the source lacks clips and the job is not partial; EvaluationError if the folder holds another
    evaluation; ConfigError if the judge cannot hear the set; WorldError if another process is gone.
    """
    with failing_together(world):
        check_judge(config.eval, job.eval_set.languages)
        simplify = load_simplifier(config.eval.simplifier)
        refused = dict(job.source.refusals(job.eval_set.items))
        if refused and not job.partial:
            raise DataError(_lacking(job.eval_set, refused))
    with ExitStack() as stack:
        with failing_together(world):
            folder = stack.enter_context(EvaluationFolder(path, plan, rank=world.rank))
        known = world.gather(set(folder.clips()) if world.rank == 0 else set())[0]
        units = [(item, seed) for seed in job.source.seeds for item in job.eval_set.items if item.id not in refused]
        todo = share(world, [(item, seed) for item, seed in units if (item.id, seed) not in known])
        with failing_together(world):
            work = _Work(job, config, folder, simplify, on_progress or (lambda done, total: None))
            work.run(todo)
        if world.rank:
            return None
        return _finish(folder, plan, units, refused, config, processes=world.size)


def _lacking(eval_set: EvalSet, refused: Mapping[str, str]) -> str:
    total = len(eval_set.items)
    return (
        f"{total - len(refused)} of {total} items of {eval_set.name} can be scored; --partial leaves the others out and "
        f"counts them: {name_some([f'{name} ({reason})' for name, reason in refused.items()])}"
    )


class _Work:
    """One process's share: while a batch is spoken, the one before it is heard."""

    def __init__(
        self,
        job: Job,
        config: RunConfig,
        folder: EvaluationFolder,
        simplify: Callable[[str], str],
        report: Progress,
    ) -> None:
        self._job, self._config, self._folder = job, config, folder
        self._simplify, self._report = simplify, report
        self._done = 0

    def run(self, units: Sequence[Unit]) -> None:
        size = self._config.rollout.batch_size
        reward = self._config.reward
        factories = [listener_factory(self._config.eval, device=device) for device in reward.devices]
        with ScoringPool(
            *factories, workers=reward.num_workers, timeout_s=reward.timeout_s, batch_size=reward.batch_size
        ) as pool:
            waiting: list[tuple[Unit, Produced, Pending[Heard | Exception] | None]] = []
            for start in range(0, len(units), size):
                began = time.perf_counter()
                batch = units[start : start + size]
                produced = self._job.source.produce(batch)
                generate_s = time.perf_counter() - began
                before = waiting
                waiting = [
                    (unit, one, self._submit(pool, unit, one)) for unit, one in zip(batch, produced, strict=True)
                ]
                self._collect(before, len(units))
                audio_s = sum(one.audio.duration_s for one in produced if one.audio)
                timing = {"generate_s": generate_s, "audio_s": audio_s, "clips": len(batch)}
                self._folder.append_timing(timing | {"wall_s": time.perf_counter() - began, "batch_size": size})
            began = time.perf_counter()
            self._collect(waiting, len(units))
            if waiting:
                self._folder.append_timing({"wall_s": time.perf_counter() - began})

    def _submit(
        self, pool: ScoringPool[EvalClip, Heard], unit: Unit, one: Produced
    ) -> Pending[Heard | Exception] | None:
        item, _ = unit
        if one.transcript is not None or one.audio is None:
            return None
        return pool.submit(EvalClip(one.audio, item.text, item.language, one.codes, item.reference))

    def _collect(self, waiting: Sequence[tuple[Unit, Produced, Pending[Heard | Exception] | None]], total: int) -> None:
        for unit, one, pending in waiting:
            heard: Heard | Exception
            if pending is None:
                heard = Heard(one.transcript or "", {})
            else:
                pending.wait(None)
                heard = pending.result()
            # Audio first: a line says that its clip is whole.
            audio = self._keep(unit, one)
            self._folder.append_clip(self._result(unit, one, heard, audio))
            self._done += 1
            self._report(self._done, total)

    def _keep(self, unit: Unit, one: Produced) -> str | None:
        if one.audio is None or not self._job.source.keeps_audio:
            return None
        item, seed = unit
        name = f"audio/seed_{seed}/{item.id}.wav"
        write_wav(self._folder.path / name, one.audio)
        return name

    def _result(self, unit: Unit, one: Produced, heard: Heard | Exception, audio: str | None) -> ClipResult:
        item, seed = unit
        clip = ClipResult(
            item.id,
            seed,
            item.text,
            item.language,
            None,
            outcome=str(one.outcome) if one.outcome else None,
            hit_limit=one.hit_limit,
            num_codes=len(one.codes) if one.outcome else None,
            audio=audio,
        )
        if isinstance(heard, Exception):
            return replace(clip, error=f"{type(heard).__name__}: {heard}")
        strict, spoken = judge_transcript(item.text, heard.transcript, item.language, to_simplified=self._simplify)
        return replace(
            clip,
            transcript=heard.transcript,
            seed_tts=strict,
            spoken=spoken,
            facts=dict(heard.facts),
            failures=dict(heard.failures),
        )


def _finish(
    folder: EvaluationFolder,
    plan: Mapping[str, Any],
    units: Sequence[Unit],
    refused: Mapping[str, str],
    config: RunConfig,
    *,
    processes: int,
) -> dict[str, Any]:
    scored, failed = folder.clips(), folder.failed()
    found = scored | failed
    keys = [(item.id, seed) for item, seed in units]
    if set(keys) != set(found):
        raise EvaluationError(
            f"{folder.path} has clips of {len(set(keys) & set(found))} of {len(keys)} units and {len(set(found) - set(keys))} "
            "others; its files were changed from outside"
        )
    clips = [found[key] for key in keys]
    total = len(keys) + len(refused) * len(plan["seeds"])
    result = {
        "plan": dict(plan),
        "scored": len(scored),
        "of": total,
        "left_out": dict(refused),
        "unscored": {f"{clip.id} (seed {clip.seed})": clip.error for clip in clips if not clip.is_scored},
        "summary": summarize(clips, bootstrap_samples=config.eval.bootstrap_samples, seed=config.seed),
        "speed": _speed(folder.timings(), processes),
        "code": {"commit": source_commit(), "packages": {name: package_version(name) for name in _PACKAGES}},
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    folder.finish(clips, result)
    return result


def _speed(timings: Sequence[Mapping[str, float]], processes: int) -> dict[str, Any]:
    """Real-time factors: seconds of one process for each second of sound, while others may run beside it."""
    total = {key: sum(row.get(key, 0.0) for row in timings) for key in ("generate_s", "wall_s", "audio_s", "clips")}
    batch = max((row["batch_size"] for row in timings if "batch_size" in row), default=None)
    return {
        **total,
        "batch_size": batch,
        "processes": processes,
        "real_time_factor": total["generate_s"] / total["audio_s"] if total["audio_s"] else None,
        "real_time_factor_with_scoring": total["wall_s"] / total["audio_s"] if total["audio_s"] else None,
    }
