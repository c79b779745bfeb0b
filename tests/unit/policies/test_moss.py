"""Sampling and scoring of rows against a computation that has nothing in common with either."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from elocution.config.tree import LoraSettings, MossSettings
from elocution.grpo.weights import parse_channel_weights
from elocution.policies.base import PolicyBatch
from elocution.policies.lora import BasePolicy, add_adapter
from elocution.policies.moss import MossPolicy
from elocution.policies.padding import pad_prompts
from elocution.rollout.agreement import score_completions
from elocution.rollout.base import RolloutRequest
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_moss, use_exact_norms
from elocution.train.batch import TrainingGroup, filler_batch, learner_batch
from elocution.train.learner import Learner, LearnerSettings
from elocution.types import Completion, FinishReason, Outcome, Rollout, RolloutGroup, Score, Utterance, Voice

VOICE = Voice("v", "one", np.arange(12).reshape(3, 4))
UTTERANCES = (
    Utterance("plain", "mary painted the house"),
    Utterance("voiced", "one three", voice=VOICE, emotion="three"),
)


def draw(
    policy: MossPolicy, *, temperature: float = 1.0, count: int = 6, batch_size: int = 16
) -> list[list[Completion]]:
    engine = TorchEngine(policy, temperature=temperature, batch_size=batch_size)
    engine.publish(0)
    requests = [
        RolloutRequest(policy.prompt_ids(utterance), tuple((index, seed) for seed in range(count)), 40 - 28 * index)
        for index, utterance in enumerate(UTTERANCES)
    ]
    return engine.generate(requests)


def cells(
    policy: MossPolicy, prompt: NDArray[np.int64], ids: NDArray[np.int64]
) -> Iterator[tuple[int, int, set[int], Tensor]]:
    """Each row and channel with what may stand there and its logits, by one plain forward pass over all rows.

    The rules are written out anew, for one clip in a turn.
    """
    slots, books, pad = policy.slots, policy.num_codebooks, policy.slots.pad_code
    rows = torch.from_numpy(np.concatenate([prompt, ids]))
    by_channel = [logits[0, len(prompt) - 1 : -1] for logits in policy.moss(rows[None])]
    text = ids[:, 0].tolist()
    for row in range(len(ids)):
        before = text[:row]
        vocabulary = set(range(by_channel[0].shape[-1]))
        if slots.audio_start not in before:
            allowed = vocabulary - {slots.pad, slots.gen_slot, slots.delay_slot, slots.audio_end}
            if row <= books:
                allowed -= {slots.im_end}
        elif slots.delay_slot not in before:
            allowed = {slots.gen_slot, slots.delay_slot}
        else:
            allowed = {slots.delay_slot if before.count(slots.delay_slot) < books else slots.audio_end}
        yield row, 0, allowed, by_channel[0][row]
        for book in range(books):
            begun = before.index(slots.audio_start) if slots.audio_start in before else row
            ended = before.index(slots.delay_slot) if slots.delay_slot in before else row
            drawn = row - begun > book and (row - ended <= book)
            yield row, 1 + book, set(range(pad)) if drawn else {pad}, by_channel[1 + book][row]


def brute_force(policy: MossPolicy, prompt: NDArray[np.int64], ids: NDArray[np.int64], temperature: float) -> Tensor:
    """Log-probs of all cells, 0 where only one id could stand. Shapes: [T, 1 + Q]."""
    found = torch.zeros(ids.shape, dtype=torch.float64)
    for row, channel, allowed, logits in cells(policy, prompt, ids):
        assert int(ids[row, channel]) in allowed
        if len(allowed) > 1:
            places = torch.tensor(sorted(allowed))
            found[row, channel] = (logits[int(ids[row, channel])] / temperature) - torch.logsumexp(
                logits[places] / temperature, dim=0
            )
    return found


def group(policy: MossPolicy, utterance: Utterance, completions: list[Completion]) -> RolloutGroup:
    rollouts = tuple(
        Rollout(utterance, each, policy.codes(each.ids), None, Outcome.SPEECH, policy.actions(each.ids))
        for each in completions
    )
    return RolloutGroup(utterance, policy.prompt_ids(utterance), rollouts, (Score(1.0),) * len(rollouts))


def training(policy: MossPolicy, completions: list[list[Completion]]) -> list[TrainingGroup]:
    groups = [group(policy, u, own) for u, own in zip(UTTERANCES, completions, strict=True)]
    return [
        TrainingGroup(each, each.rollouts, tuple(1.0 - 2.0 * (i % 2) for i in range(len(each.rollouts))))
        for each in groups
    ]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_s47_every_cell_has_the_log_prob_of_one_plain_forward_pass(temperature: float) -> None:
    policy = small_moss(dtype=torch.float64)
    use_exact_norms(policy.model)
    completions = draw(policy, temperature=temperature)
    for utterance, own in zip(UTTERANCES, completions, strict=True):
        prompt = policy.prompt_ids(utterance)
        ids = [each.ids for each in own]
        scored = score_completions(policy, [prompt] * len(ids), ids, temperature=temperature)
        for completion, logprobs in zip(own, scored, strict=True):
            wanted = brute_force(policy, prompt, completion.ids, temperature).detach().numpy()
            np.testing.assert_allclose(logprobs, wanted, rtol=0, atol=2e-5)
            np.testing.assert_allclose(completion.rollout_logprobs, wanted, rtol=0, atol=2e-5)
            assert (wanted[policy.actions(completion.ids)] < 0).all()


def test_drawn_completions_are_of_all_kinds() -> None:
    """What the other tests draw has text before audio, clips of several lengths, and budgets that ran out."""
    policy = small_moss()
    drawn = [each for own in draw(policy, count=24) for each in own]
    frames = [len(policy.codes(each.ids)) for each in drawn]
    assert {each.finish_reason for each in drawn} == {FinishReason.STOP, FinishReason.LENGTH}
    assert len(set(frames)) >= 4
    assert len({int(each.ids[0, 0]) for each in drawn}) >= 4


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_s44_ratios_of_every_cell_start_at_one(temperature: float) -> None:
    policy = small_moss()
    batches = [learner_batch(training(policy, draw(policy, temperature=temperature)))]
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    learner = Learner(
        policy,
        small_moss(),
        optimizer,
        LearnerSettings(temperature=temperature, channel_weights=parse_channel_weights("1,32", 5), entropy_coef=0.1),
    )
    stats = learner.update(batches, on_policy=True)
    assert stats.max_ratio_deviation < 1e-4
    assert stats.kl == pytest.approx(0.0, abs=1e-8)


def test_a_completion_is_the_same_in_any_batch() -> None:
    policy = small_moss()
    together = draw(policy, batch_size=16)
    for batch_size in (1, 5):  # alone, or joining others under way
        others = draw(policy, batch_size=batch_size)
        for one, other in zip(chain(*together), chain(*others), strict=True):
            assert (one.ids == other.ids).all()
            np.testing.assert_allclose(one.rollout_logprobs, other.rollout_logprobs, rtol=0, atol=1e-5)


def test_s40_padding_and_neighbours_change_no_log_prob() -> None:
    policy = small_moss()
    groups = training(policy, draw(policy))
    together = learner_batch(groups).policy
    logprobs, _ = policy.logprobs(together, temperature=1.0)
    row = 0
    for each in groups:
        for rollout, advantage in zip(each.rollouts, each.advantages, strict=True):
            single = learner_batch([TrainingGroup(each.group, (rollout,), (advantage,))]).policy
            own, _ = policy.logprobs(single, temperature=1.0)
            torch.testing.assert_close(logprobs[row, : own.shape[1]], own[0], rtol=0, atol=1e-5)
            assert (logprobs[row, own.shape[1] :] == 0).all()
            row += 1


def test_forced_cells_and_the_last_frame_are_no_actions() -> None:
    policy, whole = small_moss(), small_moss(settings=MossSettings(drop_last_frame=False))
    books = policy.num_codebooks
    ended = [each.ids for own in draw(policy) for each in own if each.ids[-1, 0] == policy.slots.audio_end]
    assert len(ended) > 4
    for ids in ended:
        frames = len(whole.codes(ids))
        assert len(policy.codes(ids)) == frames - 1
        assert (policy.codes(ids) == whole.codes(ids)[:-1]).all()
        assert whole.actions(ids)[:, 1:].sum() == frames * books
        assert policy.actions(ids)[:, 1:].sum() == (frames - 1) * books
        assert (ids[:, 1:] != policy.slots.pad_code).sum() == frames * books
        # The text of the forced delay and of the end is none either: Q - 1 slots and one.
        assert (~policy.actions(ids)[:, 0]).sum() == books
        dropped = ids[:, 1:][whole.actions(ids)[:, 1:] & ~policy.actions(ids)[:, 1:]]
        assert sorted(dropped) == sorted(whole.codes(ids)[-1])


def test_a_completion_that_ran_out_of_budget_keeps_its_whole_frames() -> None:
    policy = small_moss()
    start, gen = policy.slots.audio_start, policy.slots.gen_slot
    ids = np.full((7, 5), 16)
    ids[:, 0] = [start, *[gen] * 6]
    for book in range(4):
        ids[1 + book :, 1 + book] = np.arange(6 - book)
    assert policy.codes(ids).tolist() == [[0] * 4, [1] * 4, [2] * 4]
    assert policy.actions(ids)[:, 1:].sum() == 6 + 5 + 4 + 3


def test_a_turn_without_audio_has_no_codes() -> None:
    policy = small_moss()
    ids = np.full((6, 5), 16)
    ids[:, 0] = [9, 9, 9, 9, 9, policy.slots.im_end]
    assert policy.codes(ids).shape == (0, 4)
    assert policy.actions(ids).tolist() == [[True, False, False, False, False]] * 6


def test_s48_every_head_and_table_gets_a_gradient() -> None:
    policy = small_moss()
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    learner = Learner(
        policy, small_moss(1), optimizer, LearnerSettings(channel_weights=parse_channel_weights("1,32", 5))
    )
    learner.update([learner_batch(training(policy, draw(policy)))], on_policy=True)
    silent = [
        name
        for name, parameter in policy.model.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    ]
    assert silent == []


def test_with_an_adapter_heads_and_tables_get_no_gradient() -> None:
    policy = small_moss()
    add_adapter(policy.model, LoraSettings(rank=8, alpha=16), targets=policy.lora_targets, seed=0)
    trained = [name for name, parameter in policy.model.named_parameters() if parameter.requires_grad]
    assert trained
    assert all(".lora_" in name and name.startswith("language_model.layers.") for name in trained)
    optimizer = torch.optim.SGD([p for p in policy.model.parameters() if p.requires_grad], lr=0.1)
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    learner = Learner(policy, BasePolicy(policy), optimizer, LearnerSettings())
    learner.update([learner_batch(training(policy, draw(policy)))], on_policy=True)
    changed = {name for name, tensor in policy.model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in trained if ".lora_B." in name}  # A has none before B moves
    assert all(parameter.grad is None for name, parameter in policy.model.named_parameters() if name not in trained)


@pytest.mark.parametrize("channel", range(5))
def test_weights_of_one_channel_alone_move_that_head_alone(channel: int) -> None:
    policy = small_moss()
    batch = learner_batch(training(policy, draw(policy)))
    weights = tuple(float(each == channel) for each in range(5))
    optimizer = torch.optim.SGD(policy.moss.lm_heads.parameters(), lr=0.0)
    policy.model.requires_grad_(False)
    policy.moss.lm_heads[channel].requires_grad_(True)
    Learner(policy, small_moss(), optimizer, LearnerSettings(channel_weights=weights)).update([batch], on_policy=True)
    assert policy.moss.lm_heads[channel].weight.grad.any()


def test_the_supervised_loss_is_that_of_the_reference() -> None:
    """Each channel's mean over its cells, weighted "1,32" and divided by the sum of the weights."""
    policy = small_moss()
    groups = training(policy, draw(policy))
    batch = learner_batch(groups)
    logprobs, _ = policy.logprobs(batch.policy, temperature=1.0)
    weights = parse_channel_weights("1,32", 5)
    assert weights == (1.0, 8.0, 8.0, 8.0, 8.0)
    mask = batch.policy.completion_mask
    means = [-logprobs[..., c][mask[..., c]].mean().item() for c in range(5)]
    wanted = sum(w * mean for w, mean in zip(weights, means, strict=True)) / sum(weights)
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    learner = Learner(policy, small_moss(), optimizer, LearnerSettings(loss="weighted_ce", channel_weights=weights))
    ones = replace(batch, advantages=torch.ones_like(batch.advantages))
    assert learner.update([ones], on_policy=True).policy_loss == pytest.approx(wanted, rel=1e-5)


def test_bf16_products_sample_what_they_score() -> None:
    policy = small_moss()
    policy = MossPolicy(policy.moss, policy.tokenizer, torch.bfloat16)
    batch = learner_batch(training(policy, draw(policy)))
    logprobs, _ = policy.logprobs(batch.policy, temperature=1.0)
    gaps = (logprobs - batch.rollout_logprobs)[batch.policy.completion_mask]
    assert gaps.abs().mean() < 0.05


def test_exact_kl_is_the_sum_over_what_each_cell_may_hold() -> None:
    policy, reference = small_moss(dtype=torch.float64), small_moss(3, dtype=torch.float64)
    for each in (policy, reference):
        use_exact_norms(each.model)
    completions = draw(policy)
    batch = learner_batch(training(policy, completions)).policy
    kl = policy.states(batch).exact_kl(reference.states(batch), temperature=1.0)
    row = 0
    for utterance, own in zip(UTTERANCES, completions, strict=True):
        prompt = policy.prompt_ids(utterance)
        for completion in own:
            actions = policy.actions(completion.ids)
            both = zip(cells(policy, prompt, completion.ids), cells(reference, prompt, completion.ids), strict=True)
            for (t, c, allowed, p), (_, _, _, q) in both:
                places = torch.tensor(sorted(allowed))
                p, q = torch.log_softmax(p[places], dim=0), torch.log_softmax(q[places], dim=0)
                wanted = (p.exp() * (p - q)).sum().item() if actions[t, c] else 0.0
                assert kl[row, t, c].item() == pytest.approx(wanted, abs=1e-9)
            row += 1


def test_the_batch_of_a_filler_has_finite_log_probs() -> None:
    policy = small_moss()
    logprobs, entropy = policy.logprobs(filler_batch(int(policy.legal_ids[0]), 5).policy, temperature=1.0)
    assert torch.isfinite(logprobs).all()
    assert torch.isfinite(entropy).all()


def test_prompts_of_rows_are_padded_on_the_left() -> None:
    policy = small_moss()
    prompts = [policy.prompt_ids(utterance) for utterance in UTTERANCES]
    ids, mask = pad_prompts(prompts)
    assert ids.shape == (2, max(map(len, prompts)), 5)
    for row, prompt in enumerate(prompts):
        assert (ids[row][mask[row].bool()].numpy() == prompt).all()
        assert not mask[row, : ids.shape[1] - len(prompt)].any()
    assert isinstance(PolicyBatch(ids, mask, mask, ids, ids.bool()).to(torch.device("cpu")), PolicyBatch)
