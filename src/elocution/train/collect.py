"""Scored groups for the learner, step after step, from stages that work ahead of it as far as `train.max_lag` allows.

    rollout ──> decode ──> score ──> the learner
       ^                                 │ weights, when a step is done
       └─────────────────────────────────┘

Of several processes each draws its share of the prompts; servers are asked by process 0 alone, which deals out what they
answer. The weights that draw a step's completions are a function of the step (`train.lag`), never the newest that happen to be
there, so a run and a resumed run are the same whatever the timing.
"""

from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import Self

from elocution.config.tree import RunConfig
from elocution.data.sampler import PromptSampler
from elocution.rewards import Reward
from elocution.train.courier import Courier
from elocution.train.lag import sampled_after, weights_needed
from elocution.train.mirror import Snapshot, capture
from elocution.train.pipeline import Inputs, Pipeline, Stage
from elocution.train.setup import Parts, rollout_temperature
from elocution.train.stages import Drawn, Job, deal_stage, decode_stage, draw_stage, receive_stage, score_stage
from elocution.train.world import ALONE, World
from elocution.types import RolloutGroup

__all__ = ["Collector"]


class Collector:
    """Draws, decodes and scores this process's share of each step's prompts while entered. Use from one thread."""

    def __init__(
        self,
        config: RunConfig,
        parts: Parts,
        reward: Reward,
        snapshots: Mapping[int, Snapshot],
        *,
        world: World = ALONE,
        courier: Courier | None = None,
    ) -> None:
        """`snapshots` are those of steps before the one that the run begins after, as `older_snapshots` gave them.

        With a `courier`, process 0 draws for all.
        """
        self._config, self._parts, self._world = config, parts, world
        self._draws_for_all = courier is not None and world.rank == 0
        self._sampler = PromptSampler(len(parts.train_prompts.utterances), config.train.prompts_per_step, config.seed)
        self._snapshots = dict(snapshots)
        self._newest = Snapshot(-1)
        self._begun: int | None = None  # the last step whose completions have been asked for
        self._asked: deque[tuple[int, int]] = deque()  # (step, attempt) of what is under way, in order
        self._arrived: dict[tuple[int, int], list[RolloutGroup]] = {}
        # A batch's completions may wait before each stage, and so many scored batches as may be under way at all.
        rows = config.train.prompts_per_step * config.rollout.group_size
        self._pipeline: Pipeline[Job, list[RolloutGroup]] = Pipeline(
            [
                Stage("rollout", self._draw_stage(courier), rows),
                Stage("decode", decode_stage(parts.speaker, reward), rows),
                Stage(
                    "score",
                    score_stage(reward, max_unscored_share=config.reward.max_unscored_share),
                    1 + config.train.max_lag,
                ),
            ],
            consumer="learn",
        )

    def _draw_stage(self, courier: Courier | None) -> Callable[[Inputs[Job]], Generator[Drawn, None, None]]:
        parts = self._parts
        drawn = parts.engines.rollout, parts.speaker, parts.sampling_policy
        if courier is None:
            return draw_stage(*drawn)
        return deal_stage(*drawn, courier) if self._draws_for_all else receive_stage(parts.speaker, courier)

    def __enter__(self) -> Self:
        self._pipeline.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipeline.__exit__(kind, error, trace)

    def older_snapshots(self, step: int) -> dict[int, Snapshot]:
        """The weights of steps before `step` that a run needs which continues after it, by step."""
        return {each: snapshot for each, snapshot in self._snapshots.items() if each < step}

    def busy_s(self) -> dict[str, float]:
        """How long `rollout`, `decode`, `score` and `learn` have worked rather than waited so far, seconds."""
        return self._pipeline.busy_s()

    def advance(self, step: int, version: int) -> None:
        """Says that `step` is done and the policy has had `version` updates; begins what waited for these weights.

        Raises: the first error of a stage.
        """
        train = self._config.train
        needed = weights_needed(step, max_lag=train.max_lag, sync_every=train.sync_every, total=train.steps)
        if step in needed:
            # Without lag nothing is drawn while the weights change, so the policy itself is sampled if it is whole.
            is_copied = self._parts.sampling_policy is not self._parts.policy
            here = capture(self._parts.policy.model, version) if is_copied else Snapshot(version)
            self._snapshots[step] = here
        if self._begun is None:
            self._begun = step
        while self._begun < train.steps and (after := self._sampled_after(self._begun + 1)) <= step:
            self._begun += 1
            self._newest = self._snapshots[after]
            self._ask(self._begun, 0, self._sampler.batch(self._begun - 1))
        self._snapshots = {each: snapshot for each, snapshot in self._snapshots.items() if each in needed}

    def groups(self, step: int, should_stop: Callable[[], bool]) -> list[RolloutGroup] | None:
        """This process's scored groups of `step`; None if `should_stop` says so first.

        Raises: the first error of a stage.
        """
        return self._arrival((step, 0), should_stop)

    def more(self, step: int, attempt: int, count: int, should_stop: Callable[[], bool]) -> list[RolloutGroup] | None:
        """Its share of the groups of at most `count` more prompts, drawn with the newest weights that any batch under way has.

        None if `should_stop` says so first. Raises: the first error of a stage.
        """
        self._ask(step, 1 + attempt, self._sampler.extra(step - 1, attempt, count))
        return self._arrival((step, 1 + attempt), should_stop)

    def _sampled_after(self, step: int) -> int:
        return sampled_after(step, max_lag=self._config.train.max_lag, sync_every=self._config.train.sync_every)

    def _ask(self, step: int, attempt: int, chosen: Sequence[int]) -> None:
        siblings = range(self._config.rollout.group_size)
        whole = Job(
            utterances=tuple(self._parts.train_prompts.utterances[index] for index in chosen),
            seeds=tuple(tuple((self._config.seed, step, index, sibling) for sibling in siblings) for index in chosen),
            temperature=rollout_temperature(self._config, step),
            snapshot=self._newest,
        )
        job = whole if self._draws_for_all else whole.share(self._world.rank, self._world.size)
        if not job.utterances:
            self._arrived[step, attempt] = []
            return
        self._asked.append((step, attempt))
        self._pipeline.put(job)

    def _arrival(self, key: tuple[int, int], should_stop: Callable[[], bool]) -> list[RolloutGroup] | None:
        while key not in self._arrived:
            groups = self._pipeline.get(should_stop)
            if groups is None:
                return None
            self._arrived[self._asked.popleft()] = groups
        return self._arrived.pop(key)
