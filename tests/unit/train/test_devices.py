"""Where tensors are made: with torch's default device "meta", one made without a device would have no numbers."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from elocution.errors import ConfigError
from elocution.policies.lora import LoraSettings, add_adapter
from elocution.rollout.agreement import score_completions
from elocution.rollout.base import RolloutRequest
from elocution.rollout.torch_engine import TorchEngine
from elocution.testing.policies import small_llasa
from elocution.train.batch import advantages_of, filler_batch, micro_batches, minibatches
from elocution.train.device import choose_device
from elocution.train.launcher import Place
from elocution.train.learner import Learner, LearnerSettings
from elocution.types import Outcome, Rollout, RolloutGroup, Score, Utterance

SETTINGS = LearnerSettings(kl_coef=0.1, entropy_coef=0.01, whole_stops=True)
VARIANTS = [
    SETTINGS,
    replace(SETTINGS, kl_estimate="exact", aggregation="sequence"),
    replace(SETTINGS, correction="token_truncate", loss="gspo", channel_weights=(1.0,)),
]


@pytest.fixture
def default_is_meta() -> Iterator[None]:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.parametrize("settings", VARIANTS, ids=["k3", "exact", "correction"])
@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
def test_engine_and_learner_make_every_tensor_on_the_devices_of_their_model(
    settings: LearnerSettings, rank: int, request: pytest.FixtureRequest
) -> None:
    policy, reference = small_llasa(), small_llasa()
    if rank:
        add_adapter(policy.model, LoraSettings(rank=rank), targets=policy.lora_targets, seed=0)
    trained = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    request.getfixturevalue("default_is_meta")
    assert torch.zeros(1).is_meta

    utterances = [Utterance(str(index), text) for index, text in enumerate(("one", "mary painted the house"))]
    engine = TorchEngine(policy, temperature=1.0, batch_size=3)
    engine.publish(0)
    requests = [
        RolloutRequest(policy.prompt_ids(u), tuple((place, sibling) for sibling in range(3)), 8 + 8 * place)
        for place, u in enumerate(utterances)
    ]
    groups = [
        RolloutGroup(
            utterance,
            asked.prompt_ids,
            tuple(
                Rollout(utterance, completion, np.zeros((1, 1), np.int64), None, Outcome.SPEECH) for completion in drawn
            ),
            tuple(Score(float(index)) for index in range(3)),
        )
        for utterance, asked, drawn in zip(utterances, requests, engine.generate(requests), strict=True)
    ]
    completions = [rollout.completion for group in groups for rollout in group.rollouts]
    scored = score_completions(
        policy,
        [group.prompt_ids for group in groups for _ in group.rollouts],
        [completion.ids for completion in completions],
        temperature=1.0,
    )
    for own, completion in zip(scored, completions, strict=True):
        assert own == pytest.approx(completion.rollout_logprobs, abs=1e-4)
    (part,) = minibatches(groups, advantages_of(groups, std_floor=0.01), 1)
    learner = Learner(policy, reference, optimizer, settings)
    batches = micro_batches(part, 1)
    before = [parameter.detach().clone() for parameter in trained]
    old = learner.logprobs([*batches, filler_batch(int(policy.legal_ids[0]), 1)])
    assert all(bool(torch.isfinite(each).all()) for each in old)
    stats = learner.update(batches, on_policy=True)
    assert stats.grad_norm > 0
    assert any(not torch.equal(one, other) for one, other in zip(before, trained, strict=True))


def test_auto_takes_a_gpu_if_there_is_one_and_each_process_its_own() -> None:
    assert choose_device("auto", Place(), num_gpus=0) == torch.device("cpu")
    assert choose_device("auto", Place(), num_gpus=2) == torch.device("cuda", 0)
    assert choose_device("cuda:1", Place(), num_gpus=2) == torch.device("cuda", 1)
    second = Place(rank=5, size=8, local_rank=1, local_size=4)
    assert choose_device("cuda", second, num_gpus=4) == torch.device("cuda", 1)
    assert choose_device("cpu", second, num_gpus=4) == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "place", "num_gpus", "said"),
    [
        ("cuda", Place(), 0, "needs GPU 0 on this machine, and torch sees 0"),
        ("auto", Place(3, 4, 3, 4), 2, "needs GPU 3 on this machine, and torch sees 2"),
        ("cuda:0", Place(0, 2, 0, 2), 2, "gives 2 processes one GPU"),
    ],
)
def test_a_device_that_is_not_there_or_would_be_shared_is_refused(
    name: str, place: Place, num_gpus: int, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        choose_device(name, place, num_gpus=num_gpus)
