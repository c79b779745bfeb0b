from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elocution.errors import ConfigError, DeadParameterError, NonFiniteError, RatioMismatch
from elocution.policies.llasa import LlasaPolicy
from elocution.rollout.base import RolloutRequest
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_llasa
from elocution.train.batch import LearnerBatch, advantages_of, micro_batches, minibatches
from elocution.train.learner import Learner, LearnerSettings, UpdateStats
from elocution.train.replay import read_batches, write_batches
from elocution.types import Outcome, Rollout, RolloutGroup, Score, Utterance

SETTINGS = LearnerSettings(kl_coef=0.05)
REWARDS = [[0.1, 0.9, 0.4, None], [0.5, 0.5, 0.5, 0.5], [0.0, 0.2, 0.9, 0.3], [0.7, 0.1, 0.6, 0.2]]


def groups_of(policy: LlasaPolicy, rewards: Sequence[Sequence[float | None]] = REWARDS) -> list[RolloutGroup]:
    texts = ["one", "three one", "mary painted the house", "three three one"]
    utterances = [Utterance(str(index), text) for index, text in enumerate(texts)]
    engine = TorchEngine(policy, temperature=1.0, batch_size=32)
    engine.publish(0)
    requests = [
        RolloutRequest(policy.prompt_ids(u), tuple((index, sibling) for sibling in range(4)), 24)
        for index, u in enumerate(utterances)
    ]
    groups = []
    for utterance, request, completions, values in zip(
        utterances, requests, engine.generate(requests), rewards, strict=True
    ):
        rollouts = tuple(
            Rollout(utterance, completion, np.zeros((1, 1), np.int64), None, Outcome.SPEECH)
            for completion in completions
        )
        scores = tuple(Score(v) if v is not None else Score(None, error="down") for v in values)
        groups.append(RolloutGroup(utterance, request.prompt_ids, rollouts, scores))
    return groups


def learner_of(policy: LlasaPolicy, reference: LlasaPolicy | None = None) -> Learner:
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=1.0)
    return Learner(policy, reference or small_llasa(1, dtype=torch.float64), optimizer, SETTINGS)


def cut(groups: Sequence[RolloutGroup], max_positions: int) -> list[LearnerBatch]:
    batch = advantages_of(groups, std_floor=0.01)
    (part,) = minibatches(groups, batch, 1)
    return micro_batches(part, max_positions)


def test_s50_one_step_is_the_same_however_it_is_cut() -> None:
    outcomes: list[tuple[int, list[torch.Tensor], UpdateStats]] = []
    for max_positions in (100_000, 220, 1):
        policy = small_llasa(dtype=torch.float64)
        batches = cut(groups_of(policy), max_positions)
        stats = learner_of(policy).update(batches, on_policy=True)
        outcomes.append((len(batches), [p.detach().clone() for p in policy.model.parameters()], stats))
    assert [count for count, _, _ in outcomes] == [1, 2, 3]
    for _, weights, stats in outcomes[1:]:
        for one, other in zip(weights, outcomes[0][1], strict=True):
            assert (one - other).abs().max() < 1e-6
        assert stats.policy_loss == pytest.approx(outcomes[0][2].policy_loss, abs=1e-9)
        assert stats.kl == pytest.approx(outcomes[0][2].kl, abs=1e-9)
        assert stats.entropy == pytest.approx(outcomes[0][2].entropy, abs=1e-9)
        assert stats.num_tokens == outcomes[0][2].num_tokens


def test_groups_without_spread_and_unscored_siblings_stay_out_of_the_loss() -> None:
    groups = groups_of(small_llasa())
    (part,) = minibatches(groups, advantages_of(groups, std_floor=0.01), 1)
    assert [group.group.utterance.id for group in part] == ["0", "2", "3"]
    assert [len(group.rollouts) for group in part] == [3, 4, 4]
    tokens = sum(len(rollout.completion.ids) for group in part for rollout in group.rollouts)
    assert sum(batch.num_tokens for batch in cut(groups, 200)) == tokens


def test_minibatches_share_the_groups_and_never_an_empty_one() -> None:
    groups = groups_of(small_llasa())
    parts = minibatches(groups, advantages_of(groups, std_floor=0.01), 2)
    assert sorted(group.group.utterance.id for part in parts for group in part) == ["0", "2", "3"]
    equal = groups_of(small_llasa(), [[0.5] * 4] * 4)
    assert minibatches(equal, advantages_of(equal, std_floor=0.01), 2) == []


def test_an_update_makes_better_completions_more_likely() -> None:
    policy = small_llasa(dtype=torch.float64)
    groups = groups_of(policy)
    batches = cut(groups, 100_000)

    def gain() -> float:
        with torch.no_grad():
            return sum(
                float((b.advantages * policy.logprobs(b.policy, temperature=1.0)[0].sum(dim=(1, 2))).sum())
                for b in batches
            )

    before = gain()
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.05)
    Learner(policy, small_llasa(dtype=torch.float64), optimizer, SETTINGS).update(batches, on_policy=True)
    assert gain() > before


def test_kl_is_zero_against_the_same_weights_and_positive_against_others() -> None:
    policy = small_llasa(dtype=torch.float64)
    batches = cut(groups_of(policy), 100_000)
    same = learner_of(policy, small_llasa(dtype=torch.float64)).update(batches, on_policy=True)
    assert same.kl == pytest.approx(0, abs=1e-12)
    other = learner_of(small_llasa(dtype=torch.float64)).update(batches, on_policy=True)
    assert other.kl > 1e-4


@pytest.mark.parametrize("kl_coef", [0.0, 0.1])
def test_the_exact_kl_is_measured_beside_k3_and_enters_the_loss_by_its_weight(kl_coef: float) -> None:
    policy, reference = small_llasa(dtype=torch.float64), small_llasa(1, dtype=torch.float64)
    batches = cut(groups_of(policy), 220)
    with torch.no_grad():
        wanted = sum(
            policy.states(b.policy).exact_kl(reference.states(b.policy), temperature=1.0).sum().item() for b in batches
        ) / sum(b.num_tokens for b in batches)
    stats, moved = [], []
    for estimate in ("k3", "exact"):
        again = small_llasa(dtype=torch.float64)
        optimizer = torch.optim.SGD(again.model.parameters(), lr=1.0)
        settings = replace(SETTINGS, kl_coef=kl_coef, kl_estimate=estimate)
        stats.append(Learner(again, reference, optimizer, settings).update(batches, on_policy=True))
        moved.append(list(again.model.parameters()))
    assert stats[0].exact_kl is None
    assert stats[1].exact_kl == pytest.approx(wanted, rel=1e-9)
    assert stats[1].kl == pytest.approx(stats[0].kl, rel=1e-9)
    # Sampled from the policy, the estimate is right on average.
    assert wanted / 2 < stats[1].kl < 2 * wanted
    same = all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(*moved, strict=True))
    assert same == (kl_coef == 0)


def test_the_exact_kl_pulls_the_policy_to_the_reference() -> None:
    policy, reference = small_llasa(dtype=torch.float64), small_llasa(1, dtype=torch.float64)
    batches = cut(groups_of(policy), 100_000)
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.1)
    settings = replace(SETTINGS, kl_coef=100.0, kl_estimate="exact", max_grad_norm=1.0)
    learner = Learner(policy, reference, optimizer, settings)
    values = [learner.update(batches, on_policy=False).exact_kl for _ in range(3)]
    assert values[0] is not None
    assert values[0] > values[1] > values[2]  # type: ignore[operator]


class LogprobsOnly:
    """A policy or reference that says nothing of the ids that were not drawn."""

    def __init__(self, policy: LlasaPolicy) -> None:
        self.model, self.compute_dtype, self.logprobs = policy.model, policy.compute_dtype, policy.logprobs


@pytest.mark.parametrize("which", ["policy", "reference"])
def test_an_exact_kl_that_cannot_be_had_is_refused_before_any_work(which: str) -> None:
    parts: dict[str, Any] = {"policy": small_llasa(), "reference": small_llasa(1)}
    parts[which] = LogprobsOnly(parts[which])
    optimizer = torch.optim.SGD(small_llasa().model.parameters(), lr=1.0)
    with pytest.raises(
        ConfigError, match=r"kl_estimate = 'exact' .* LogprobsOnly has no `states`; choose k1, k2 or k3"
    ):
        Learner(**parts, optimizer=optimizer, settings=LearnerSettings(kl_estimate="exact"))
    Learner(**parts, optimizer=optimizer, settings=LearnerSettings(kl_estimate="k3"))


def test_s64_sampling_with_other_weights_is_found_before_any_update() -> None:
    policy = small_llasa(dtype=torch.float64)
    batches = cut(groups_of(small_llasa(5, dtype=torch.float64)), 100_000)
    before = [parameter.detach().clone() for parameter in policy.model.parameters()]
    with pytest.raises(RatioMismatch, match="does not sample from the policy"):
        learner_of(policy).update(batches, on_policy=True)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))


def test_a_correction_reports_how_far_the_engine_is_off_and_what_that_costs() -> None:
    policy = small_llasa(dtype=torch.float64)
    groups = groups_of(policy)
    batches = []
    for batch in cut(groups, 220):
        # The engine thought each first id e times less probable than the learner does: ratios e, all others 1.
        off = torch.zeros_like(batch.rollout_logprobs)
        off[:, 0] = -1.0
        batches.append(replace(batch, rollout_logprobs=batch.old_logprobs + off))
    learner = learner_of(policy)
    assert learner.update(cut(groups, 220), on_policy=True).mismatch is None
    for high, share in ((2.0, 1.0), (3.0, 0.0)):
        learner.settings = replace(SETTINGS, correction="token_truncate", correction_high=high)
        mismatch = learner.update(batches, on_policy=False).mismatch
        assert mismatch is not None
        rows, cells = sum(len(batch.advantages) for batch in batches), sum(batch.num_tokens for batch in batches)
        assert mismatch.mean == pytest.approx(rows / cells)
        assert mismatch.max == pytest.approx(1.0)
        assert mismatch.bounded_share == pytest.approx(share * rows / cells)


def test_s52_a_loss_that_is_not_finite_changes_no_weight() -> None:
    policy = small_llasa(dtype=torch.float64)
    batches = cut(groups_of(policy), 100_000)
    with torch.no_grad():
        policy.llama.model.layers[0].mlp.up_proj.weight[0, 0] = torch.inf
    before = [parameter.detach().clone() for parameter in policy.model.parameters()]
    with pytest.raises(NonFiniteError, match="no weight was changed"):
        learner_of(policy).update(batches, on_policy=False)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))


def test_s53_a_head_without_gradient_is_named_before_any_update() -> None:
    policy = small_llasa(dtype=torch.float64)
    policy.model.register_parameter("unused_head", torch.nn.Parameter(torch.ones(3, dtype=torch.float64)))
    batches = cut(groups_of(policy), 100_000)
    before = [parameter.detach().clone() for parameter in policy.model.parameters()]
    with pytest.raises(DeadParameterError, match=r"1 parameters .* unused_head"):
        learner_of(policy).update(batches, on_policy=True)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))


def test_a_dumped_batch_gives_the_same_update_when_replayed(tmp_path: Path) -> None:
    policy, again = small_llasa(dtype=torch.float64), small_llasa(dtype=torch.float64)
    batches = cut(groups_of(policy), 220)
    write_batches(tmp_path / "skipped" / "batch.pt", batches)
    first = learner_of(policy).update(batches, on_policy=True)
    second = learner_of(again).update(read_batches(tmp_path / "skipped" / "batch.pt"), on_policy=True)
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(policy.model.parameters(), again.model.parameters(), strict=True))


def test_recomputed_activations_give_the_same_update() -> None:
    kept, recomputed = small_llasa(dtype=torch.float64), small_llasa(dtype=torch.float64)
    recomputed.llama.activation_checkpointing_enable()
    batches = cut(groups_of(kept), 100_000)
    learner_of(kept).update(batches, on_policy=True)
    settings = replace(SETTINGS, activation_checkpointing=True)
    optimizer = torch.optim.SGD(recomputed.model.parameters(), lr=1.0)
    Learner(recomputed, small_llasa(1, dtype=torch.float64), optimizer, settings).update(batches, on_policy=True)
    assert not recomputed.model.training
    assert all(torch.equal(a, b) for a, b in zip(kept.model.parameters(), recomputed.model.parameters(), strict=True))


def test_bf16_products_keep_fp32_masters_and_ratios_near_1() -> None:
    model = small_llasa(dtype=torch.float32)
    policy = LlasaPolicy(model.llama, model.tokenizer, torch.bfloat16)
    batches = cut(groups_of(policy), 100_000)
    stats = learner_of(policy, small_llasa(1)).update(batches, on_policy=True)
    assert 1e-5 < stats.max_ratio_deviation < 0.2
    assert {parameter.dtype for parameter in policy.model.parameters()} == {torch.float32}
    exact = small_llasa(dtype=torch.float32)
    learner_of(exact, small_llasa(1)).update(batches, on_policy=False)
    for one, other, first in zip(
        policy.model.parameters(), exact.model.parameters(), small_llasa().model.parameters(), strict=True
    ):
        if torch.equal(other, first):
            continue
        change, wanted = (one - first).flatten(), (other - first).flatten()
        assert torch.cosine_similarity(change, wanted, dim=0) > 0.999


def test_with_bf16_products_the_exact_kl_and_its_gradient_are_near_those_of_fp32() -> None:
    settings = replace(SETTINGS, kl_coef=3.0, kl_estimate="exact")
    model, exact = small_llasa(), small_llasa()
    policy = LlasaPolicy(model.llama, model.tokenizer, torch.bfloat16)
    reference = small_llasa(1)
    rounded_reference = LlasaPolicy(reference.llama, reference.tokenizer, torch.bfloat16)
    batches = cut(groups_of(exact), 100_000)
    found = []
    for mine, other in ((policy, rounded_reference), (exact, reference)):
        optimizer = torch.optim.SGD(mine.model.parameters(), lr=1.0)
        found.append(Learner(mine, other, optimizer, settings).update(batches, on_policy=False))
    rounded, wanted = (stats.exact_kl for stats in found)
    assert rounded is not None
    assert wanted is not None
    assert 0 < abs(rounded - wanted) < 0.005 * wanted
    moved = 0
    for one, other, first in zip(
        policy.model.parameters(), exact.model.parameters(), small_llasa().model.parameters(), strict=True
    ):
        change, wanted_change = (one - first).flatten(), (other - first).flatten()
        if wanted_change.any():
            moved += 1
            assert torch.cosine_similarity(change, wanted_change, dim=0) > 0.999
    assert moved > 10
