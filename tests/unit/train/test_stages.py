"""Draw, decode and score with a scripted engine and reward: whatever the timing, the groups are the same."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest
import torch.distributed as dist
from numpy.typing import NDArray

from elocution.errors import EngineError, RewardError, RewardUnavailable, WorldError
from elocution.rewards import Reward
from elocution.rewards.base import Known, Pending
from elocution.rollout.base import RolloutRequest
from elocution.rollout.speak import Speaker
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_llasa
from elocution.train.courier import Courier
from elocution.train.mirror import Snapshot, capture, mirror_of
from elocution.train.pipeline import Inputs, Pipeline, Stage
from elocution.train.stages import Drawn, Job, deal_stage, decode_stage, draw_stage, receive_stage, score_stage
from elocution.train.world import dealt_back
from elocution.types import Audio, Completion, Rollout, RolloutGroup, Score, Utterance

POLICY = small_llasa(seed=1)
UTTERANCES = tuple(Utterance(str(n), text) for n, text in enumerate(["one", "mary painted the house", "three three"]))


class ShuffledEngine(TorchEngine):
    """Streams completions in an order of its own, and notes what is published."""

    def __init__(self, seed: int) -> None:
        super().__init__(POLICY, temperature=1.0, batch_size=64)
        self.order = np.random.default_rng(seed)
        self.published: list[int] = []

    def publish(self, version: int) -> None:
        self.published.append(version)
        super().publish(version)

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        drawn = list(super().stream(requests))
        yield from (drawn[place] for place in self.order.permutation(len(drawn)))


class ToneCodec:
    """A tone whose length is that of the codes; counts the clips that it decodes."""

    sample_rate, frame_rate, num_codebooks, codebook_size = 16_000, 25.0, 1, 16

    def __init__(self) -> None:
        self.decoded = 0

    def encode(self, audio: Audio) -> NDArray[np.int64]:
        raise NotImplementedError

    def decode(self, codes: Sequence[NDArray[np.int64]]) -> list[Audio]:
        self.decoded += len(codes)
        return [Audio(np.full(640 * len(clip), 0.1, np.float32), 16_000) for clip in codes]


class BatchReward:
    """Counts codes; notes how many rollouts each call brings."""

    def __init__(self, answer: Any = None) -> None:
        self.answer, self.calls = answer, list[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Score]:
        self.calls.append(len(rollouts))
        return [self.judge(rollout) for rollout in rollouts]

    def judge(self, rollout: Rollout) -> Score:
        return Score(float(len(rollout.codes))) if self.answer is None else self.answer


class StreamingCounter(BatchReward):
    """The same, each rollout by itself."""

    def start(self, rollout: Rollout) -> Pending[Score]:
        self.calls.append(1)
        return Known(self.judge(rollout))


def job(number: int = 0, *, version: int = 0, alike: bool = False) -> Job:
    seeds = tuple(tuple((number, n, 0 if alike else sibling) for sibling in range(4)) for n in range(len(UTTERANCES)))
    return Job(UTTERANCES, seeds, 1.0, Snapshot(version))


def speaker_of(engine: TorchEngine, codec: ToneCodec | None = None) -> Speaker:
    return Speaker(POLICY, engine, codec or ToneCodec(), max_codes_per_char=2.0, min_codes=10)


def pipeline_of(
    first: Callable[[Inputs[Job]], Generator[Drawn, None, None]],
    speaker: Speaker,
    reward: Reward,
    *,
    max_unscored_share: float = 0.2,
) -> Pipeline[Job, list[RolloutGroup]]:
    return Pipeline(
        [
            Stage("rollout", first, 5),
            Stage("decode", decode_stage(speaker, reward), 5),
            Stage("score", score_stage(reward, max_unscored_share=max_unscored_share), 1),
        ],
        consumer="learn",
    )


def run(
    jobs: Sequence[Job],
    reward: Reward,
    *,
    codec: ToneCodec | None = None,
    engine: TorchEngine | None = None,
    max_unscored_share: float = 0.2,
) -> list[list[RolloutGroup]]:
    engine = engine or ShuffledEngine(0)
    speaker = speaker_of(engine, codec)
    stages = pipeline_of(draw_stage(engine, speaker, POLICY), speaker, reward, max_unscored_share=max_unscored_share)
    with stages as pipeline:
        for each in jobs:
            pipeline.put(each)
        found = [pipeline.get() for _ in jobs]
    assert all(groups is not None for groups in found)
    return [groups for groups in found if groups is not None]


def flat(groups: Sequence[RolloutGroup]) -> list[tuple[str, list[int], list[float], float | None]]:
    return [
        (
            group.utterance.id,
            rollout.completion.ids[:, 0].tolist(),
            rollout.completion.rollout_logprobs[:, 0].tolist(),
            score.value,
        )
        for group in groups
        for rollout, score in zip(group.rollouts, group.scores, strict=True)
    ]


def test_groups_do_not_depend_on_the_order_in_which_completions_end() -> None:
    jobs = [job(1), job(2)]
    plain = TorchEngine(POLICY, temperature=1.0, batch_size=64)
    expected = [flat(groups) for groups in run(jobs, StreamingCounter(), engine=plain)]
    assert [row[0] for row in expected[0]] == ["0"] * 4 + ["1"] * 4 + ["2"] * 4
    for seed in range(3):
        for reward in (StreamingCounter(), BatchReward()):
            assert [flat(groups) for groups in run(jobs, reward, engine=ShuffledEngine(seed))] == expected


def test_every_score_belongs_to_its_own_rollout() -> None:
    (groups,) = run([job()], StreamingCounter())
    assert len({score.value for group in groups for score in group.scores}) > 2
    for group in groups:
        assert [score.value for score in group.scores] == [float(len(rollout.codes)) for rollout in group.rollouts]


def test_a_reward_that_cannot_stream_gets_all_completions_of_a_step_in_one_call() -> None:
    reward = BatchReward()
    run([job(1), job(2)], reward)
    assert reward.calls == [12, 12]


def test_s10_s14_completions_that_are_alike_are_decoded_and_scored_once_in_a_step() -> None:
    codec, reward = ToneCodec(), StreamingCounter()
    first, second = run([job(alike=True), job(alike=True)], reward, codec=codec)
    # An empty completion has nothing to decode, but a score.
    assert codec.decoded == 2 * len({group.rollouts[0].codes.tobytes() for group in first} - {b""})
    assert len(reward.calls) == 2 * len(UTTERANCES)
    for group in first + second:
        assert len({id(rollout.audio) for rollout in group.rollouts}) == 1
        assert len({score.value for score in group.scores}) == 1


def test_s64_weights_are_published_when_they_change_and_only_then() -> None:
    engine = ShuffledEngine(0)
    found = run([job(1, version=4), job(2, version=4), job(3, version=6)], StreamingCounter(), engine=engine)
    assert engine.published == [4, 6]
    versions = [{r.completion.policy_version for group in groups for r in group.rollouts} for groups in found]
    assert versions == [{4}, {4}, {6}]


def test_each_job_is_drawn_with_the_weights_of_its_own_snapshot() -> None:
    mirror = mirror_of(POLICY)
    tensors = {name: tensor * 1.5 for name, tensor in capture(POLICY.model, 0).tensors.items()}
    engine = TorchEngine(mirror, temperature=1.0, batch_size=64)
    speaker = Speaker(mirror, engine, ToneCodec(), max_codes_per_char=2.0, min_codes=10)
    draw: Stage = Stage("rollout", draw_stage(engine, speaker, mirror), 100)
    with Pipeline[Job, Any]([draw], consumer="learn") as pipeline:
        old = job(1, version=1)
        own = replace(old, snapshot=capture(POLICY.model, 1))
        for each in (own, replace(old, snapshot=Snapshot(2, tensors)), replace(own, snapshot=capture(POLICY.model, 3))):
            pipeline.put(each)
        drawn = [[pipeline.get() for _ in range(12)] for _ in range(3)]
    first, moved, back = (
        {(row.index, row.sibling): row.completion.rollout_logprobs[0, 0] for row in rows} for rows in drawn
    )
    assert first == back
    assert first != moved


@pytest.mark.parametrize("kind", [BatchReward, StreamingCounter])
def test_s02_more_failures_than_allowed_end_the_run(kind: type[BatchReward]) -> None:
    with pytest.raises(RewardUnavailable, match=r"12 of 12 .*max_unscored_share = 0\.2.*first error: no recogniser"):
        run([job()], kind(Score(None, error="no recogniser")))
    (groups,) = run([job()], kind(Score(None, error="no recogniser")), max_unscored_share=1.0)
    assert {score.error for group in groups for score in group.scores} == {"no recogniser"}


@pytest.mark.parametrize("kind", [BatchReward, StreamingCounter])
def test_a_reward_that_gives_something_else_than_a_score_is_named(kind: type[BatchReward]) -> None:
    with pytest.raises(RewardError, match=f"{kind.__name__} gave 'good', expected"):
        run([job()], kind("good"))


class Raises(StreamingCounter):
    """Fails where `place` says."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def start(self, rollout: Rollout) -> Pending[Score]:
        return _Broken(self.place) if self.place != "start" else _fail("start")


class _Broken:
    def __init__(self, place: str) -> None:
        self.place = place

    def wait(self, wait_s: float | None) -> bool:
        return True if self.place != "wait" else _fail("wait")

    def result(self) -> Score:
        return _fail("result")


def _fail(place: str) -> Any:
    raise TimeoutError(f"no answer to {place}")


@pytest.mark.parametrize("place", ["start", "wait", "result"])
def test_a_streaming_reward_that_raises_is_named_and_leaves_no_thread(place: str) -> None:
    before = threading.active_count()
    with pytest.raises(RewardError, match=f"Raises failed: TimeoutError: no answer to {place}"):
        run([job()], Raises(place))
    assert threading.active_count() == before


def couriers(size: int) -> list[Courier]:
    first = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    others = [dist.TCPStore("localhost", first.port, is_master=False, wait_for_workers=False) for _ in range(1, size)]
    return [Courier(store, rank=rank, size=size) for rank, store in enumerate([first, *others])]


@pytest.mark.parametrize("size", [2, 4])  # four processes for three prompts: one has nothing to do
def test_s77_what_one_process_draws_for_all_reaches_the_process_of_each_prompt(size: int) -> None:
    jobs = [job(1, version=3), job(2, version=3), job(3, version=5)]
    expected = [flat(groups) for groups in run(jobs, StreamingCounter(), engine=ShuffledEngine(0))]
    engine, ends = ShuffledEngine(1), couriers(size)
    speaker = speaker_of(engine)
    deal = deal_stage(engine, speaker, POLICY, ends[0])
    firsts = [deal, *(receive_stage(speaker, end) for end in ends[1:])]
    found = []
    with ExitStack() as stack:
        pipelines = [stack.enter_context(pipeline_of(first, speaker, StreamingCounter())) for first in firsts]
        for each in jobs:
            own = [each, *(each.share(rank, size) for rank in range(1, size))]
            busy = [(pipeline, part) for pipeline, part in zip(pipelines, own, strict=True) if part.utterances]
            for pipeline, part in busy:
                pipeline.put(part)
            found.append([pipeline.get() or [] for pipeline, _ in busy])
    assert [flat(dealt_back(shares)) for shares in found] == expected
    versions = [
        [{r.completion.policy_version for group in groups for r in group.rollouts} for groups in shares]
        for shares in found
    ]
    assert versions == [[{version}] * min(size, 3) for version in (3, 3, 5)]


class BrokenEngine(ShuffledEngine):
    """Its servers are gone after two completions."""

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        yield from list(super().stream(requests))[:2]
        raise EngineError("no server is left")


def test_s85_processes_that_wait_for_completions_hear_why_they_will_not_come() -> None:
    engine, ends = BrokenEngine(0), couriers(2)
    speaker = speaker_of(engine)
    first = pipeline_of(deal_stage(engine, speaker, POLICY, ends[0]), speaker, BatchReward())
    with first, pipeline_of(receive_stage(speaker, ends[1]), speaker, BatchReward()) as second:
        first.put(job())
        second.put(job().share(1, 2))
        with pytest.raises(WorldError, match="process 0, which draws for all, goes no further: no server is left"):
            second.get()
        with pytest.raises(EngineError, match="no server is left"):
            first.get()


def test_a_process_that_waits_for_completions_can_be_stopped() -> None:
    engine, ends = ShuffledEngine(0), couriers(2)
    speaker = speaker_of(engine)
    with pipeline_of(receive_stage(speaker, ends[1]), speaker, BatchReward()) as second:
        second.put(job().share(1, 2))
        assert second.get(lambda: True) is None
