"""What must not change the gradient of a step, in fp64: order, padding, the cut, and what else is in the batch."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from elocution.policies.base import PolicyBatch
from elocution.policies.llasa import LlasaPolicy
from elocution.rollout.base import RolloutRequest
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_llasa, use_exact_norms
from elocution.train.batch import LearnerBatch, advantages_of, micro_batches, minibatches
from elocution.train.learner import Learner, LearnerSettings
from elocution.types import Completion, FinishReason, Outcome, Rollout, RolloutGroup, Score, Utterance

SETTINGS = LearnerSettings(temperature=0.7, kl_coef=0.1, max_grad_norm=1e9)
REWARDS = [[0.1, 0.9, 0.4, 0.2], [0.0, 0.2, 0.9, 0.3], [0.7, 0.1, 0.6, 0.2]]


def exact_policy(seed: int = 0) -> LlasaPolicy:
    policy = small_llasa(seed, dtype=torch.float64)
    use_exact_norms(policy.model)
    return policy


@pytest.fixture(scope="module")
def groups() -> list[RolloutGroup]:
    """Drawn from other weights than the policy's, so that ratios lie on both sides of both bounds."""
    sampler = exact_policy(3)
    engine = TorchEngine(sampler, temperature=0.7, batch_size=32)
    engine.publish(0)
    utterances = [Utterance(str(i), text) for i, text in enumerate(("one", "mary painted the house", "three one"))]
    requests = [
        RolloutRequest(sampler.prompt_ids(u), tuple((index, sibling) for sibling in range(4)), 20)
        for index, u in enumerate(utterances)
    ]
    return [
        group_of(utterance, request.prompt_ids, completions, rewards)
        for utterance, request, completions, rewards in zip(
            utterances, requests, engine.generate(requests), REWARDS, strict=True
        )
    ]


def group_of(
    utterance: Utterance, prompt_ids: np.ndarray, completions: Sequence[Completion], rewards: Sequence[float]
) -> RolloutGroup:
    codes = np.zeros((1, 1), np.int64)
    rollouts = tuple(Rollout(utterance, completion, codes, None, Outcome.SPEECH) for completion in completions)
    return RolloutGroup(utterance, prompt_ids, rollouts, tuple(Score(reward) for reward in rewards))


def cut(groups: Sequence[RolloutGroup], positions: int = 100_000) -> list[LearnerBatch]:
    (part,) = minibatches(groups, advantages_of(groups, std_floor=0.01), 1)
    return micro_batches(part, positions)


def gradient(
    batches: Sequence[LearnerBatch], *, on_policy: bool = False, settings: LearnerSettings = SETTINGS
) -> list[Tensor]:
    """What one step of plain gradient descent takes away from each weight."""
    policy, reference = exact_policy(), exact_policy(9)
    before = [parameter.detach().clone() for parameter in policy.model.parameters()]
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=1.0)
    learner = Learner(policy, reference, optimizer, settings)
    learner.update(batches, on_policy=on_policy)
    return [a - b for a, b in zip(before, policy.model.parameters(), strict=True)]


def assert_same(one: Sequence[Tensor], other: Sequence[Tensor]) -> None:
    assert max(float(a.detach().abs().max()) for a in one) > 1e-3
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_s50_the_cut_into_micro_batches_changes_nothing(groups: list[RolloutGroup]) -> None:
    assert [len(cut(groups, positions)) for positions in (100_000, 130, 1)] == [1, 2, 3]
    assert_same(gradient(cut(groups)), gradient(cut(groups, 130)))
    assert_same(gradient(cut(groups)), gradient(cut(groups, 1)))


def test_the_order_of_groups_and_of_siblings_changes_nothing(groups: list[RolloutGroup]) -> None:
    turned = [
        RolloutGroup(group.utterance, group.prompt_ids, group.rollouts[::-1], group.scores[::-1])
        for group in groups[::-1]
    ]
    assert_same(gradient(cut(groups)), gradient(cut(turned)))


@pytest.mark.parametrize("junk", [0.0, float("nan"), float("inf")])
def test_padding_on_either_side_and_what_it_holds_change_nothing(groups: list[RolloutGroup], junk: float) -> None:
    (batch,) = cut(groups)
    policy = batch.policy
    rows, prompts, stop = len(policy.row_prompt), len(policy.prompt_ids), int(policy.completion_ids[0, 0, 0])
    padded = LearnerBatch(
        policy=PolicyBatch(
            prompt_ids=torch.cat([torch.full((prompts, 3), stop), policy.prompt_ids], dim=1),
            prompt_mask=torch.cat([torch.zeros(prompts, 3, dtype=torch.long), policy.prompt_mask], dim=1),
            row_prompt=policy.row_prompt,
            completion_ids=torch.cat([policy.completion_ids, torch.full((rows, 4, 1), stop)], dim=1),
            completion_mask=torch.cat([policy.completion_mask, torch.zeros(rows, 4, 1, dtype=torch.bool)], dim=1),
        ),
        advantages=batch.advantages,
        finished=batch.finished,
        old_logprobs=torch.cat([batch.old_logprobs, torch.full((rows, 4, 1), junk)], dim=1),
        rollout_logprobs=torch.cat([batch.rollout_logprobs, torch.full((rows, 4, 1), junk)], dim=1),
    )
    padded.old_logprobs[~padded.policy.completion_mask] = junk
    assert_same(gradient([batch]), gradient([padded]))


def test_on_policy_the_gradient_is_reinforce(groups: list[RolloutGroup]) -> None:
    (batch,) = cut(groups)
    policy = exact_policy()
    logprobs, _ = policy.logprobs(batch.policy, temperature=0.7)
    on_policy = replace(batch, old_logprobs=logprobs.detach())
    loss = -(batch.advantages[:, None, None].double() * logprobs).sum() / batch.num_tokens
    reference, _ = exact_policy(9).logprobs(batch.policy, temperature=0.7)
    difference = torch.where(batch.policy.completion_mask, reference.detach() - logprobs, torch.zeros_like(logprobs))
    kl = (difference.exp() - difference - 1).sum() / batch.num_tokens
    (loss + SETTINGS.kl_coef * kl).backward()
    wanted = [p.grad for p in policy.model.parameters() if p.grad is not None]
    assert_same(gradient([on_policy], on_policy=True), wanted)


EXACT = replace(SETTINGS, kl_coef=3.0, kl_estimate="exact")


def test_s50_with_the_exact_kl_the_cut_into_micro_batches_changes_nothing(groups: list[RolloutGroup]) -> None:
    assert_same(gradient(cut(groups), settings=EXACT), gradient(cut(groups, 130), settings=EXACT))
    assert_same(gradient(cut(groups), settings=EXACT), gradient(cut(groups, 1), settings=EXACT))


def test_the_exact_kl_adds_its_own_gradient_to_that_of_the_loss(groups: list[RolloutGroup]) -> None:
    (batch,) = cut(groups)
    policy, reference = exact_policy(), exact_policy(9)
    states = policy.states(batch.policy)
    kl = states.exact_kl(reference.states(batch.policy), temperature=0.7)
    (EXACT.kl_coef * kl.sum() / batch.num_tokens).backward()
    alone = gradient([batch], settings=replace(SETTINGS, kl_coef=0.0))
    both = gradient([batch], settings=EXACT)
    wanted = [parameter.grad for parameter in policy.model.parameters() if parameter.grad is not None]
    assert_same([b - a for a, b in zip(alone, both, strict=True)], wanted)


def test_s28_a_finished_completion_learns_to_stop_and_a_truncated_one_does_not() -> None:
    """Padding holds a legal id, here the stop id itself: only the mask tells them apart."""
    policy = exact_policy()
    codes = [policy.first_code_id + code for code in (3, 5, 7)]
    utterance = Utterance("u", "one")

    def logprobs_of(finished: bool) -> Tensor:
        ids = np.array([*codes, policy.stop_id] if finished else codes)[:, None]
        reason = FinishReason.STOP if finished else FinishReason.LENGTH
        completion = Completion(ids, np.zeros(ids.shape, np.float32), reason, 0)
        longer = Completion(np.array([*codes, *codes, policy.stop_id])[:, None], np.zeros((7, 1), np.float32),
                            FinishReason.STOP, 0)  # fmt: skip
        (batch,) = cut([group_of(utterance, policy.prompt_ids(utterance), [completion, longer], [1.0, 0.0])])
        batch.policy.completion_ids[~batch.policy.completion_mask] = policy.stop_id
        logprobs, _ = policy.logprobs(batch.policy, temperature=1.0)
        assert int(batch.policy.completion_mask[0].sum()) == len(ids)
        return logprobs[0, :, 0].detach()

    stop = float(logprobs_of(True)[3])
    assert stop < 0
    assert logprobs_of(False)[3:].tolist() == [0.0] * 4
    assert logprobs_of(True)[4:].tolist() == [0.0] * 3
