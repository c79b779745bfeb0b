"""The stages between a prompt and its score, as generators for a `Pipeline`: draw, decode, score.

Where servers draw for several processes, process 0 deals out what they answer, and the others receive it instead of
drawing. Whatever comes first is worked on first; what leaves the last stage is in the order of its prompts and seeds again, so
timing changes nothing.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from operator import attrgetter

from elocution.errors import RewardUnavailable
from elocution.policies.base import Policy
from elocution.rewards import Reward, score_all
from elocution.rewards.base import Pending, StreamingReward, start_scoring
from elocution.rollout.base import RolloutEngine, RolloutRequest
from elocution.rollout.speak import Speaker
from elocution.train.courier import Courier
from elocution.train.mirror import Snapshot, load_snapshot
from elocution.train.pipeline import Inputs
from elocution.types import Audio, Completion, Rollout, RolloutGroup, Score, Utterance

__all__ = ["Drawn", "Job", "Spoken", "deal_stage", "decode_stage", "draw_stage", "receive_stage", "score_stage"]

_DECODE_AT_ONCE = 16
_LOOK_S = 0.1  # how often a stage that waits for a score looks whether it shall stop


@dataclass(frozen=True)
class Job:
    """Prompts to be answered: one completion for each seed of each utterance, drawn with the weights of `snapshot`."""

    utterances: tuple[Utterance, ...]
    seeds: tuple[tuple[tuple[int, ...], ...], ...]
    temperature: float
    snapshot: Snapshot

    @property
    def num_completions(self) -> int:
        return sum(map(len, self.seeds))

    def share(self, rank: int, size: int) -> "Job":
        """What of it is the job of process `rank` of `size`: every `size`-th utterance, from its rank on; may be none."""
        return replace(self, utterances=self.utterances[rank::size], seeds=self.seeds[rank::size])


@dataclass(frozen=True)
class Drawn:
    """The completion of one seed of a job's utterance `index`."""

    job: Job
    request: RolloutRequest
    index: int
    sibling: int
    completion: Completion


@dataclass(frozen=True)
class Spoken:
    """A completion with its sound, and its score where that is under way."""

    drawn: Drawn
    rollout: Rollout
    score: Pending[Score] | None


def draw_stage(
    engine: RolloutEngine, speaker: Speaker, policy: Policy
) -> Callable[[Inputs[Job]], Generator[Drawn, None, None]]:
    """Publishes the weights of each job to `engine`, where they are others than before, and draws."""

    def draw(jobs: Inputs[Job]) -> Generator[Drawn, None, None]:
        published: int | None = None
        for job in jobs:
            engine.temperature = job.temperature
            if job.snapshot.version != published:
                load_snapshot(policy.model, job.snapshot)
                engine.publish(job.snapshot.version)
                published = job.snapshot.version
            requests = speaker.requests(job.utterances, job.seeds)
            for index, sibling, completion in engine.stream(requests):
                yield Drawn(job, requests[index], index, sibling, completion)

    return draw


def deal_stage(
    engine: RolloutEngine, speaker: Speaker, policy: Policy, courier: Courier
) -> Callable[[Inputs[Job]], Generator[Drawn, None, None]]:
    """As `draw_stage`, for the jobs of all processes: keeps process 0's share and sends the others theirs."""
    draw = draw_stage(engine, speaker, policy)

    def deal(jobs: Inputs[Job]) -> Generator[Drawn, None, None]:
        whole = own = None
        try:
            for drawn in draw(jobs):
                if drawn.job is not whole:
                    whole, own = drawn.job, drawn.job.share(0, courier.size)
                assert own is not None
                index, owner = divmod(drawn.index, courier.size)
                if owner:
                    courier.send(owner, (index, drawn.sibling, drawn.completion))
                else:
                    yield replace(drawn, job=own, index=index)
        except Exception as error:  # the others wait for completions that will not come
            courier.fail(f"process 0, which draws for all, goes no further: {error}")
            raise

    return deal


def receive_stage(speaker: Speaker, courier: Courier) -> Callable[[Inputs[Job]], Generator[Drawn, None, None]]:
    """Waits for the completions of each job, which process 0 draws; the jobs are its shares, in the same order."""

    def receive(jobs: Inputs[Job]) -> Generator[Drawn, None, None]:
        for job in jobs:
            requests = speaker.requests(job.utterances, job.seeds)
            for _ in range(job.num_completions):
                while (received := courier.receive(_LOOK_S)) is None:
                    jobs.check()
                index, sibling, completion = received
                yield Drawn(job, requests[index], index, sibling, completion)

    return receive


def decode_stage(speaker: Speaker, reward: Reward) -> Callable[[Inputs[Drawn]], Generator[Spoken, None, None]]:
    """Decodes what is there, each code sequence of a job once, and begins to score it if the reward can.

    Completions of one prompt that are alike share one score.
    """

    def decode(drawn: Inputs[Drawn]) -> Generator[Spoken, None, None]:
        current: Job | None = None
        clips: dict[bytes, Audio] = {}
        scores: dict[tuple[int, bytes], Pending[Score]] = {}
        while True:
            for job, rows in groupby(drawn.take(_DECODE_AT_ONCE), key=attrgetter("job")):
                if job is not current:
                    current, clips, scores = job, {}, {}
                own = list(rows)
                rollouts = speaker.voice([(job.utterances[row.index], row.completion) for row in own], clips)
                for row, rollout in zip(own, rollouts, strict=True):
                    score = None
                    if isinstance(reward, StreamingReward):
                        key = row.index, row.completion.ids.tobytes()
                        score = scores[key] = scores.get(key) or start_scoring(reward, rollout)
                    yield Spoken(row, rollout, score)

    return decode


def score_stage(
    reward: Reward, *, max_unscored_share: float
) -> Callable[[Inputs[Spoken]], Generator[list[RolloutGroup], None, None]]:
    """Waits for the scores of a job, or asks for all of them at once, and puts its groups in order.

    The stage fails with RewardError if the reward breaks its contract, with RewardUnavailable if more than
    `max_unscored_share` of a job's completions could not be scored.
    """

    def score(spoken: Inputs[Spoken]) -> Generator[list[RolloutGroup], None, None]:
        for first in spoken:
            found: dict[tuple[int, int], tuple[Spoken, Score | None]] = {}
            for row in chain([first], islice(spoken, first.drawn.job.num_completions - 1)):
                score = None if row.score is None else _await(row.score, spoken)
                found[row.drawn.index, row.drawn.sibling] = row, score
            ordered = [found[place] for place in sorted(found)]
            scores = [score for _, score in ordered if score is not None]
            if not scores:
                scores = score_all(reward, [row.rollout for row, _ in ordered])
            _check_share(scores, max_unscored_share)
            yield _groups([row for row, _ in ordered], scores)

    return score


def _await(score: Pending[Score], spoken: Inputs[Spoken]) -> Score:
    while not score.wait(_LOOK_S):
        spoken.check()
    return score.result()


def _check_share(scores: Sequence[Score], max_unscored_share: float) -> None:
    failed = [score.error for score in scores if score.error is not None]
    if len(failed) > max_unscored_share * len(scores):
        raise RewardUnavailable(
            f"{len(failed)} of {len(scores)} completions could not be scored "
            f"(reward.max_unscored_share = {max_unscored_share}); first error: {failed[0]}"
        )


def _groups(rows: Sequence[Spoken], scores: Sequence[Score]) -> list[RolloutGroup]:
    groups = []
    for _, members in groupby(zip(rows, scores, strict=True), key=lambda member: member[0].drawn.index):
        siblings = list(members)
        drawn = siblings[0][0].drawn
        groups.append(
            RolloutGroup(
                drawn.job.utterances[drawn.index],
                drawn.request.prompt_ids,
                tuple(row.rollout for row, _ in siblings),
                tuple(score for _, score in siblings),
            )
        )
    return groups
