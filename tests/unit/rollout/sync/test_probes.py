from collections.abc import Callable

import numpy as np
import pytest
import torch
from sync_trainer import UTTERANCES, Trainer

from elocution.errors import ConfigError
from elocution.rollout.sync.base import Probe
from elocution.rollout.sync.probes import draw_probes, greedy_gaps, greedy_ids, probe_logprobs


def test_probes_follow_from_the_seed_and_are_what_the_policy_says_to_training_prompts(
    make_trainer: Callable[..., Trainer],
) -> None:
    policy = make_trainer().policy
    one, again, other = (draw_probes(policy, UTTERANCES, count=2, length=30, seed=seed) for seed in (1, 1, 2))
    prompts = {policy.prompt_ids(utterance).tobytes() for utterance in UTTERANCES}
    assert len(one) == 2
    assert all(np.array_equal(a.completion_ids, b.completion_ids) for a, b in zip(one, again, strict=True))
    assert any(
        a.completion_ids.shape != b.completion_ids.shape or not np.array_equal(a.completion_ids, b.completion_ids)
        for a, b in zip(one, other, strict=True)
    )
    for probe in one:
        assert probe.prompt_ids.tobytes() in prompts
        assert set(probe.completion_ids.ravel()) <= set(policy.legal_ids.tolist())


def test_without_prompts_there_are_no_probes(make_trainer: Callable[..., Trainer]) -> None:
    with pytest.raises(ConfigError, match="at least one prompt"):
        draw_probes(make_trainer().policy, [], count=2, length=30, seed=1)


def test_logprobs_greedy_ids_and_gaps_are_those_of_the_plain_model(make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer()
    policy, probes = trainer.policy, trainer.probes
    gaps = greedy_gaps(policy, probes)
    logprobs = probe_logprobs(policy, probes, temperature=0.7)
    for probe, gap, logprob in zip(probes, gaps, logprobs, strict=True):
        ids = torch.from_numpy(np.concatenate([probe.prompt_ids, probe.completion_ids[:, 0]]))[None]
        with torch.no_grad():
            logits = policy.llama(input_ids=ids).logits[0, len(probe.prompt_ids) - 1 : -1][:, policy.legal_ids]
        place = torch.searchsorted(policy.legal_ids, torch.from_numpy(probe.completion_ids))
        expected = (logits.amax(-1) - logits.gather(-1, place)[:, 0]).numpy()
        np.testing.assert_allclose(gap[:, 0], expected, atol=1e-4)
        scaled = torch.log_softmax(logits / 0.7, -1).gather(-1, place)[:, 0].numpy()
        np.testing.assert_allclose(logprob[:, 0], scaled, atol=1e-4)
    greedy = greedy_ids(policy, probes)
    drawn = [Probe(probe.prompt_ids, ids) for probe, ids in zip(probes, greedy, strict=True)]
    assert max(float(gap.max()) for gap in greedy_gaps(policy, drawn)) < 1e-4
    for probe, ids in zip(probes, greedy, strict=True):
        assert len(ids) <= len(probe.completion_ids)
        assert policy.stop_id not in ids[:-1]
        assert len(ids) == len(probe.completion_ids) or ids[-1, 0] == policy.stop_id
