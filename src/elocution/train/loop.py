"""The training loop, read downwards: take scored groups, compare siblings, update, record, release the weights, save.

The groups come from stages that run at the same time (`train.collect`), in each of the run's processes (`train.world`).
Everything random is a function of (seed, step,
utterance, sibling), so a resumed run repeats what an uninterrupted one does. Names no model family.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elocution.config.load import dump_config
from elocution.config.tree import RolloutConfig, RunConfig
from elocution.errors import NonFiniteError
from elocution.eval.guards import AlarmLevel
from elocution.eval.held_out import Evaluation, HeldOutEvaluator
from elocution.eval.likeness import VoiceLikeness
from elocution.files import write_text_atomically
from elocution.measures import load_speaker_encoder
from elocution.rewards import load_reward
from elocution.rewards.languages import check_folders, check_languages
from elocution.rewards.pool import ScoringPool, transcriber_factory
from elocution.rewards.watched import WatchedReward
from elocution.rollout.budgets import code_budgets, describe_budgets, doubt_budgets, doubt_runaways, drawn_rate
from elocution.train.batch import AdvantageBatch, LearnerBatch, TrainingGroup, advantages_of, micro_batches, minibatches
from elocution.train.best import best_so_far, held_out_composite, restore_best
from elocution.train.checkpoint import (
    Checkpoint,
    load_optimizer,
    load_reward_state,
    point_best_at,
    save_checkpoint,
)
from elocution.train.collect import Collector
from elocution.train.courier import Courier, open_courier
from elocution.train.environment import describe_environment
from elocution.train.guard import Guard
from elocution.train.idle import StageTimes, advice
from elocution.train.interrupt import StopRequest
from elocution.train.learner import UpdateStats
from elocution.train.memory import TokenBudget
from elocution.train.mirror import Snapshot, capture, load_snapshot, read_snapshots
from elocution.train.optim import rate_factor, set_learning_rates
from elocution.train.recorder import (
    lag_metrics,
    only_extremes_audible,
    peak_memory_mib,
    record_extremes,
    reward_metrics,
    update_metrics,
)
from elocution.train.replay import write_batches
from elocution.train.resume import checkpoint_to_resume, finished_evaluations
from elocution.train.run_directory import RunDirectory
from elocution.train.setup import Parts, build_parts, learner_settings
from elocution.train.sharding import optimizer_state
from elocution.train.trackers import check_trackers, tracking
from elocution.train.world import ALONE, World, dealt_back, failing_together, share
from elocution.types import Audio, RolloutGroup

__all__ = ["Progress", "RunSummary", "train"]

logger = logging.getLogger(__name__)

_CPU = torch.device("cpu")
Progress = Callable[[str, int, int, dict[str, Any]], None]
"""Called as (stage, done, total, metrics) so that a front end can draw a bar."""


@dataclass(frozen=True)
class RunSummary:
    """How a call of `train` ended. `stopped_by` names the signal or the guards that cut it short, if one did."""

    run: Path
    step: int
    before: Evaluation | None
    after: Evaluation | None
    stopped_by: str | None


def train(
    config: RunConfig,
    run_path: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    device: torch.device = _CPU,
    world: World = ALONE,
) -> RunSummary:
    """Runs GRPO as `config` says and leaves everything in `run_path`, which process 0 of `world` alone writes.

    Raises: RunDirectoryError, ConfigError, DataError, CheckpointError before any work; RewardUnavailable,
    RatioMismatch, NonFiniteError during it, with the last checkpoint intact; WorldError if another process is gone.
    """
    report = progress or (lambda stage, done, total, metrics: None)
    with ExitStack() as stack:
        with failing_together(world):  # the writer first: the others read what it has put in order
            run = stack.enter_context(RunDirectory(run_path, resume=resume, is_writer=world.rank == 0))
            finished = finished_evaluations(run, config) if resume else None
            checkpoint = checkpoint_to_resume(run, config) if resume and run.is_writer and not finished else None
        if finished:
            logger.info("%s is finished: %d steps; nothing is left to do", run.path, config.train.steps)
            return RunSummary(run.path, config.train.steps, _recorded(finished[0]), _recorded(finished[-1]), None)
        with failing_together(world):
            if resume and not run.is_writer:
                checkpoint = checkpoint_to_resume(run, config)
            check_languages(config.reward, config.data.languages)
            check_folders(config.reward, config.eval)
            check_trackers(config.log)
            model_path = checkpoint.model_path if checkpoint else None
            parts = build_parts(config, model_path, run_path=run_path, device=device, world=world)
        if run.is_writer:
            stack.callback(parts.engines.stop)
        courier = None
        if world.size > 1 and config.rollout.engine != "torch":
            courier = stack.enter_context(open_courier(world, wait_s=config.train.wait_s))
        reward = stack.enter_context(load_reward(config.reward))
        judge = stack.enter_context(
            ScoringPool(
                *[
                    transcriber_factory(config.eval.judge, path=config.eval.judge_path, device=one)
                    for one in config.reward.devices
                ],
                workers=config.reward.num_workers,
                timeout_s=config.reward.timeout_s,
                batch_size=config.reward.batch_size,
            )
        )
        if checkpoint:
            load_optimizer(checkpoint, parts.optimizer)
            reward.state.load_state_dict(load_reward_state(checkpoint))
        with failing_together(world):
            if run.is_writer:
                if not checkpoint:
                    _open_run(run, config, parts)
                parts.engines.start(parts.train_prompts.utterances)
            described, step = config.model_dump(mode="json"), checkpoint.step if checkpoint else 0
            stack.enter_context(tracking(run, config.log, described=described, step=step))
        stop = stack.enter_context(StopRequest())
        return _Run(config, run, parts, reward, judge, stop, report, world, courier).execute(checkpoint)


def _recorded(row: dict[str, Any]) -> Evaluation:
    return Evaluation(row["wer"], row["wer_low"], row["wer_high"], row, ())


def _open_run(run: RunDirectory, config: RunConfig, parts: Parts) -> None:
    for row in parts.train_prompts.skipped:
        logger.warning("skipped %s:%d: %s", row.path, row.line, row.reason)
    _say_budgets(config.rollout, parts)
    write_text_atomically(run.path / "environment.json", describe_environment())
    write_text_atomically(run.config_path, dump_config(config))


def _say_budgets(config: RolloutConfig, parts: Parts) -> None:
    utterances, rate = parts.train_prompts.utterances, drawn_rate(parts.policy, parts.codec)
    budgets = code_budgets(utterances, max_codes_per_char=config.max_codes_per_char, min_codes=config.min_codes)
    logger.info("%s", describe_budgets(budgets, rate))
    if doubt := doubt_budgets(utterances, budgets, rate):
        logger.warning("%s", doubt)


class _Run:
    """One execution of the loop; the methods are its stages, in order."""

    def __init__(
        self,
        config: RunConfig,
        run: RunDirectory,
        parts: Parts,
        reward: WatchedReward,
        judge: ScoringPool[tuple[Audio, str], str],
        stop: StopRequest,
        report: Progress,
        world: World,
        courier: Courier | None,
    ) -> None:
        self.config, self.run, self.parts = config, run, parts
        self.reward, self.stop, self.report, self.world, self.courier = reward, stop, report, world, courier
        has_monitors = bool(config.eval.every) and config.eval.on_collapse != "ignore"
        self.evaluator = HeldOutEvaluator(
            parts.held_out,
            parts.evaluation_speaker,
            judge.map,
            judge=config.eval.judge,
            temperature=config.eval.temperature,
            seed=config.seed,
            bootstrap_samples=config.eval.bootstrap_samples,
            num_probes=config.eval.probe_sentences,
            run=run.path,
            has_monitors=has_monitors,
            likeness=_load_likeness(config) if has_monitors and run.is_writer else None,
        )
        self.budget = TokenBudget(config.train.micro_batch_tokens)
        self.skipped = 0
        self.version = 0
        self.last_saved: Checkpoint | None = None
        self.collapse: str | None = None
        self.best = best_so_far(run.read_rows("evaluations.jsonl"), run.read_rows("alarms.jsonl"))
        self.has_rolled_back = bool(run.read_rows("rollbacks.jsonl"))

    def execute(self, checkpoint: Checkpoint | None) -> RunSummary:
        config, total = self.config, self.config.train.steps
        step = checkpoint.step if checkpoint else 0
        self.version = checkpoint.policy_version if checkpoint else 0
        self.last_saved = checkpoint
        # Rows of a run that began before this was counted lack it.
        self.skipped = sum(row.get("updates/skipped", 0) for row in self.run.read_rows("metrics.jsonl"))
        before = None
        if checkpoint is None:
            before = self.evaluate("before", step)
            self.save(step, {})
            if config.eval.every:
                self.point_best()  # until trained weights are better than none
        snapshots = read_snapshots(checkpoint.sampling_path) if checkpoint else {}
        with Collector(config, self.parts, self.reward, snapshots, world=self.world, courier=self.courier) as collector:
            collector.advance(step, self.version)
            while step < total and not self.stopped_by():
                metrics = self.train_step(collector, step + 1)
                if metrics is None:
                    break
                step += 1
                self.run.append_json("metrics.jsonl", metrics)
                if config.eval.every and step % config.eval.every == 0 and step < total:
                    # Before later completions are begun: those of weights that are given up would be drawn in vain.
                    self.react(self.evaluate(f"step_{step}", step), metrics, collector.older_snapshots(step))
                collector.advance(step, self.version)
                logger.info(_step_line(metrics, total))
                if doubt := doubt_runaways(metrics["outcome/runaway_share"]):
                    logger.warning("%s", doubt)
                self.report("train", step, total, metrics)
                if step % config.train.save_every == 0 or step == total:
                    self.save(step, collector.older_snapshots(step))
        if stopped_by := self.stopped_by():
            self.save(step, collector.older_snapshots(step))
            return RunSummary(self.run.path, step, before, None, stopped_by)
        if hint := advice(self.run.read_rows("metrics.jsonl"), max_lag=config.train.max_lag):
            logger.info("%s", hint)
        after = self.evaluate("after", step)
        if after is not None and self.is_best_in_the_end(after):
            self.point_best()
        return RunSummary(self.run.path, step, before, after, None)

    def stopped_by(self) -> str | None:
        """The signal or collapse that asked one of the processes to stop; all of them get the same answer."""
        return next(filter(None, self.world.gather(self.stop.signal_name or self.collapse)), None)

    def react(self, evaluation: Evaluation | None, metrics: dict[str, Any], snapshots: Mapping[int, Snapshot]) -> None:
        """Keeps the weights that were evaluated if they are the best, and asks to stop or goes back if they collapsed.

        The writer, which alone has the evaluation, decides for all.
        """
        step, action = metrics["step"], self.config.eval.on_collapse
        found: tuple[list[str], float] = ([], -1.0)
        if evaluation is not None:
            found = self.fatal(evaluation, metrics), held_out_composite(evaluation.row)
        fatal, value = self.world.gather(found)[0]
        if fatal and action == "roll_back" and not self.has_rolled_back:
            self.roll_back(step, fatal)
        elif fatal and action != "warn":
            self.collapse = f"its guards ({', '.join(fatal)})"
        elif not fatal and value > self.best:
            self.best = value
            self.save(step, snapshots)
            self.point_best()

    def fatal(self, evaluation: Evaluation, metrics: dict[str, Any]) -> list[str]:
        """The monitors that collapsed so far that the run must not go on."""
        if self.config.eval.on_collapse == "ignore":
            return []
        alarms = Guard(self.run).look(evaluation, metrics)
        return [alarm.monitor for alarm in alarms if alarm.level is AlarmLevel.STOP]

    def roll_back(self, step: int, fatal: Sequence[str]) -> None:
        """Goes on from the best weights at a lower learning rate; prompts and steps go on as they would have."""
        with failing_together(self.world):
            checkpoint = restore_best(self.run, self.parts)
        self.version += 1  # these weights, too, must reach the engines
        self.has_rolled_back = True
        self.last_saved = None
        self.save(step, {})
        factor = self.config.eval.rollback_lr_factor
        row = {"step": step, "to_step": checkpoint.step, "monitors": list(fatal), "lr_factor": factor}
        self.run.append_json("rollbacks.jsonl", row)
        logger.warning("rolled back to step %d for its guards (%s)", checkpoint.step, ", ".join(fatal))

    def is_best_in_the_end(self, after: Evaluation) -> bool:
        """Whether the last weights are better than any that were evaluated within the run, and did not collapse."""
        if not self.config.eval.every:
            return True
        alarms = Guard(self.run).find(after, self.run.read_rows("metrics.jsonl")[-1])
        collapsed = self.config.eval.on_collapse != "ignore" and any(one.level is AlarmLevel.STOP for one in alarms)
        return not collapsed and held_out_composite(after.row) > self.best

    def point_best(self) -> None:
        """Makes `best` the newest checkpoint."""
        if self.last_saved is not None and self.run.is_writer:
            point_best_at(self.run.path, self.last_saved)

    def rate_factor(self, step: int) -> float:
        """What every learning rate is multiplied by in `step`."""
        lowered = self.config.eval.rollback_lr_factor if self.has_rolled_back else 1.0
        return lowered * rate_factor(step, self.config.train)

    def train_step(self, collector: Collector, step: int) -> dict[str, Any] | None:
        """One step's metrics, or None if the run was asked to stop before the weights changed."""
        times = StageTimes(collector.busy_s)
        groups = self.collect(collector, step)
        if groups is None:
            return None
        groups = self.revalued(groups)
        updating = time.perf_counter()
        batch = self.advantages(groups)
        skipped_before, version_before = self.skipped, self.version
        updates = self.update(groups, batch, step)
        update_s = time.perf_counter() - updating
        record_extremes(self.run, step, groups)
        return {
            "step": step,
            "policy_version": self.version,
            "prompts": [group.utterance.id for group in groups],
            **reward_metrics(groups, batch.has_signal),
            **update_metrics(updates),
            **lag_metrics(groups, version_before),
            "learning_rate": self.config.train.learning_rate * self.rate_factor(step),
            "groups/resampled": len(groups) - self.config.train.prompts_per_step,
            "updates/skipped": self.skipped - skipped_before,
            **self.parts.engines.metrics(),
            "time/update_s": update_s,
            **times.metrics(),
            "memory/peak_mib": peak_memory_mib(),
            **self.reward.state.advance([score for group in groups for score in group.scores]),
        }

    def collect(self, collector: Collector, step: int) -> list[RolloutGroup] | None:
        """The step's scored groups, and more where some have no signal; None if the run was asked to stop."""
        groups = self.from_all(partial(collector.groups, step))
        for attempt in range(self.config.algorithm.max_resamples):
            if groups is None:
                break
            missing = self.config.train.prompts_per_step - sum(self.advantages(self.revalued(groups)).has_signal)
            if not missing:
                break
            more = self.from_all(partial(collector.more, step, attempt, missing))
            if more == []:
                break
            groups = None if more is None else groups + more
        return groups

    def revalued(self, groups: Sequence[RolloutGroup]) -> list[RolloutGroup]:
        """The groups of a step with what their scores are worth in it."""
        scores = iter(self.reward.state.revalue([score for group in groups for score in group.scores]))
        return [replace(group, scores=tuple(islice(scores, len(group.scores)))) for group in groups]

    def from_all(self, collect: Callable[[Callable[[], bool]], list[RolloutGroup] | None]) -> list[RolloutGroup] | None:
        """What all processes collect, in the order of the prompts; None if one of them was asked to stop."""
        with failing_together(self.world):
            own = collect(self.stop.__bool__)
        if own is not None and self.world.size > 1:
            own = only_extremes_audible(own)
        shares = [each for each in self.world.gather(own) if each is not None]
        return dealt_back(shares) if len(shares) == self.world.size else None

    def advantages(self, groups: Sequence[RolloutGroup]) -> AdvantageBatch:
        algorithm = self.config.algorithm
        return advantages_of(
            groups,
            std_floor=algorithm.std_floor,
            estimator=algorithm.advantage,
            part_weights=algorithm.part_weights,
        )

    def update(self, groups: Sequence[RolloutGroup], batch: AdvantageBatch, step: int) -> list[UpdateStats]:
        """`epochs` passes of `minibatches` optimiser steps; empty if no group has signal."""
        config = self.config
        set_learning_rates(self.parts.optimizer, self.rate_factor(step))
        self.parts.learner.settings = learner_settings(config, step=step, num_channels=self.parts.policy.num_channels)
        updates: list[UpdateStats] = []
        parts = minibatches(
            groups, batch, config.train.minibatches, mask_truncated=config.algorithm.truncated == "mask"
        )
        old_logprobs = self.old_logprobs(parts) if config.algorithm.correction != "none" else None
        for _ in range(config.algorithm.epochs):
            for part in parts:
                cut = partial(micro_batches, share(self.world, part), old_logprobs=old_logprobs)
                try:
                    # Until the first update the weights are those that ratios start from: those that sampled, or the
                    # learner's own with a correction.
                    stats = self.budget.run(cut, partial(self.parts.learner.update, on_policy=not updates))
                except NonFiniteError as error:
                    self.skip(error, cut(self.budget.positions), step)
                else:
                    updates.append(stats)
        self.version += len(updates)
        return updates

    def old_logprobs(self, parts: Sequence[Sequence[TrainingGroup]]) -> dict[int, Tensor]:
        """The learner's log-probs before the first update, by the id() of each completion. Shapes: [T, C]."""
        groups = [group for part in parts for group in share(self.world, part)]
        batches = [batch for group in groups for batch in micro_batches([group], self.budget.positions)]
        found: dict[int, Tensor] = {}
        for group, logprobs in zip(groups, self.parts.learner.logprobs(batches), strict=True):
            for rollout, row in zip(group.rollouts, logprobs, strict=True):
                found[id(rollout.completion)] = row[: len(rollout.completion.ids)]
        return found

    def skip(self, error: NonFiniteError, batches: Sequence[LearnerBatch], step: int) -> None:
        """Keeps the batch of an update that was not made.

        Raises: NonFiniteError if the run has skipped more than `train.max_skipped_updates`.
        """
        self.skipped += 1
        path = self.run.path / "skipped" / f"step_{step:04d}_{self.skipped}.pt"
        of_all = [batch for each in self.world.gather(list(batches)) for batch in each]
        if self.run.is_writer:
            write_batches(path, of_all)
        if self.skipped > self.config.train.max_skipped_updates:
            raise NonFiniteError(
                f"{error}. That is the {self.skipped}. update of this run that could not be made "
                f"(train.max_skipped_updates = {self.config.train.max_skipped_updates}); its batch is in {path}"
            ) from error
        logger.warning("update skipped in step %d: %s; its batch is in %s", step, error, path)

    def evaluate(self, name: str, step: int) -> Evaluation | None:
        """The writer's evaluation of the newest weights; None in the other processes, which go on."""
        self.gather_weights()
        if not self.run.is_writer:
            return None
        self.parts.engines.evaluation.publish(self.version)
        evaluation = self.evaluator.evaluate(
            name,
            step=step,
            policy_version=self.version,
            on_progress=lambda done, total: self.report(f"evaluate {name}", done, total, {}),
        )
        self.run.append_json("evaluations.jsonl", evaluation.row)
        logger.info(
            "held-out WER %s: %.1f %% [%.1f, %.1f]",
            name,
            100 * evaluation.wer,
            100 * evaluation.wer_low,
            100 * evaluation.wer_high,
        )
        return evaluation

    def gather_weights(self) -> None:
        """Makes `parts.whole_policy` whole and new, where the policy itself is in shards."""
        policy, copy = self.parts.policy, self.parts.whole_policy
        if copy is not policy:
            load_snapshot(copy.model, capture(policy.model, self.version))

    def save(self, step: int, snapshots: Mapping[int, Snapshot]) -> None:
        if self.last_saved is not None and self.last_saved.step == step:
            return
        self.gather_weights()
        state = optimizer_state(self.parts.optimizer)
        if not self.run.is_writer:
            self.last_saved = Checkpoint(self.run.checkpoints_path / f"step_{step}", step, self.version)
            return
        self.last_saved = save_checkpoint(
            self.run.checkpoints_path,
            self.parts.save_model,
            state,
            step=step,
            policy_version=self.version,
            keep=self.config.train.keep_checkpoints,
            snapshots=snapshots,
            reward_state=self.reward.state.state_dict(),
        )


def _load_likeness(config: RunConfig) -> VoiceLikeness | None:
    """What compares voices within the run, if the config names an encoder for it."""
    if not config.eval.speaker:
        return None
    device = config.reward.devices[0]
    return VoiceLikeness(load_speaker_encoder(config.eval.speaker, path=config.eval.speaker_path, device=device))


def _step_line(metrics: dict[str, Any], total: int) -> str:
    def shown(key: str, scale: float = 1.0) -> str:
        value = metrics[key]
        return "   n/a" if value is None else f"{scale * value:6.3f}"

    return (
        f"step {metrics['step']:4d}/{total}  reward {shown('reward/mean')}  wer {shown('wer/mean')}  "
        f"nll {shown('nll/mean')}  kl {shown('kl/k3')}  entropy {shown('entropy/nats')}  "
        f"grad {shown('grad/norm')}  {metrics['time/step_s']:5.1f} s"
    )
