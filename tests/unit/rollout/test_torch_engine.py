from dataclasses import replace

import numpy as np
import pytest
import torch

from elocution.errors import EngineError
from elocution.policies.base import IncrementalModel, PolicyBatch
from elocution.policies.choices import Choices
from elocution.policies.llasa import LlasaPolicy
from elocution.policies.padding import pad_prompts
from elocution.rollout.base import RolloutRequest
from elocution.rollout.torch_engine import TorchEngine
from elocution.tiny.pretrain import build_policy, build_tokenizer
from elocution.types import Completion, FinishReason, Utterance

WORDS = ("one", "three", "mary", "painted", "the", "house")


@pytest.fixture(scope="module")
def policy() -> LlasaPolicy:
    built = build_policy(build_tokenizer(WORDS, 16), seed=0)
    with torch.no_grad():  # sharper than an initialised model, so that a wrong cache would show
        built.llama.get_output_embeddings().weight.mul_(3)
        built.llama.get_output_embeddings().weight[built.stop_id] = 0  # so that completions have many lengths
    built.model.eval()
    return built


def requests(policy: LlasaPolicy, siblings: int = 6, max_new: int = 40) -> list[RolloutRequest]:
    texts = ["one", "mary painted the house", "three three one one"]
    return [
        RolloutRequest(
            policy.prompt_ids(Utterance(str(index), text)),
            tuple((index, sibling) for sibling in range(siblings)),
            max_new - 7 * index,
        )
        for index, text in enumerate(texts)
    ]


def engine(
    policy: LlasaPolicy, temperature: float = 1.0, batch_size: int = 64, *, compiled: bool = True
) -> TorchEngine:
    made = TorchEngine(policy, temperature=temperature, batch_size=batch_size, compiled=compiled)
    made.publish(3)
    return made


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("temperature", "batch_size"), [(1.0, 64), (0.6, 64), (1.0, 5)])
def test_s44_s47_sampling_logprobs_are_the_learners(
    policy: LlasaPolicy, temperature: float, batch_size: int, compiled: bool
) -> None:
    asked = requests(policy)
    groups = engine(policy, temperature, batch_size, compiled=compiled).generate(asked)
    rows = [(index, completion) for index, group in enumerate(groups) for completion in group]
    longest = max(len(completion.ids) for _, completion in rows)
    ids = torch.full((len(rows), longest, 1), policy.stop_id)
    mask = torch.zeros(len(rows), longest, 1, dtype=torch.bool)
    sampled = torch.zeros(len(rows), longest, 1)
    for row, (_, completion) in enumerate(rows):
        length = len(completion.ids)
        ids[row, :length] = torch.from_numpy(completion.ids)
        sampled[row, :length] = torch.from_numpy(completion.rollout_logprobs)
        mask[row, :length] = True
    prompt_ids, prompt_mask = pad_prompts([request.prompt_ids for request in asked])
    batch = PolicyBatch(prompt_ids, prompt_mask, torch.tensor([index for index, _ in rows]), ids, mask)
    logprobs, _ = policy.logprobs(batch, temperature=temperature)
    assert torch.expm1(logprobs - sampled)[mask].abs().max() < 1e-4


@pytest.mark.parametrize("compiled", [True, False])
def test_a_completion_does_not_depend_on_its_batch(policy: LlasaPolicy, compiled: bool) -> None:
    asked = requests(policy)
    together = engine(policy, compiled=compiled).generate(asked)
    refilled = [engine(policy, batch_size=size, compiled=compiled).generate(asked) for size in (1, 5, 16)]
    alone = [engine(policy, compiled=not compiled).generate([request])[0] for request in asked]
    for other in (*refilled, alone):
        for group, others in zip(together, other, strict=True):
            for one, another in zip(group, others, strict=True):
                assert np.array_equal(one.ids, another.ids)


class CountingPolicy(LlasaPolicy):
    """Notes how many rows each step has."""

    steps: tuple[int, ...] = ()

    def incremental(self, *, compiled: bool = True) -> IncrementalModel:
        model = super().incremental(compiled=compiled)
        step = model.step

        def counted(ids: torch.Tensor) -> Choices:
            self.steps += (len(ids),)
            return step(ids)

        model.step = counted  # type: ignore[method-assign]
        return model


def test_waiting_completions_take_the_place_of_those_that_have_ended(policy: LlasaPolicy) -> None:
    counting = CountingPolicy(policy.llama, policy.tokenizer)
    asked = requests(policy, siblings=80, max_new=160)
    lengths = [len(completion.ids) for group in engine(counting, batch_size=32).generate(asked) for completion in group]
    assert sum(counting.steps) == sum(lengths) - len(lengths)  # the first id of each comes of its prompt, none twice
    assert max(counting.steps) <= 32
    occupied = sum(counting.steps) / (32 * len(counting.steps))
    batches = [lengths[start : start + 32] for start in range(0, len(lengths), 32)]
    in_batches = sum(lengths) / (32 * sum(max(batch) for batch in batches))
    assert occupied > 0.8 > 1.1 * in_batches


def test_completions_are_streamed_as_they_end(policy: LlasaPolicy) -> None:
    asked = requests(policy, siblings=20)
    streamed = list(engine(policy).stream(asked))
    lengths = [len(completion.ids) for _, _, completion in streamed]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]
    assert sorted((index, sibling) for index, sibling, _ in streamed) == [(i, j) for i in range(3) for j in range(20)]
    whole = engine(policy).generate(asked)
    for index, sibling, completion in streamed:
        assert np.array_equal(completion.ids, whole[index][sibling].ids)
        assert np.array_equal(completion.rollout_logprobs, whole[index][sibling].rollout_logprobs)


def test_a_stream_may_be_left_at_any_time(policy: LlasaPolicy) -> None:
    made, asked = engine(policy), requests(policy)
    stream = made.stream(asked)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert not torch.is_inference_mode_enabled()
    assert [len(group) for group in made.generate(asked)] == [6, 6, 6]


def test_s28_completions_end_at_the_stop_id_or_at_their_budget(policy: LlasaPolicy) -> None:
    asked = requests(policy, siblings=40)
    asked.append(replace(asked[0], max_new=9))
    completions: list[tuple[int, Completion]] = [
        (request.max_new, completion)
        for request, group in zip(asked, engine(policy).generate(asked), strict=True)
        for completion in group
    ]
    assert {completion.finish_reason for _, completion in completions} == {FinishReason.STOP, FinishReason.LENGTH}
    legal = set(policy.legal_ids.tolist())
    assert len({len(completion.ids) for _, completion in completions}) > 8
    for budget, completion in completions:
        ids = completion.ids[:, 0].tolist()
        assert set(ids) <= legal
        assert policy.stop_id not in ids[:-1]
        assert len(completion.rollout_logprobs) == len(ids)
        assert completion.policy_version == 3
        if completion.finish_reason is FinishReason.STOP:
            assert ids[-1] == policy.stop_id
            assert len(ids) <= budget
        else:
            assert ids[-1] != policy.stop_id
            assert len(ids) == budget


class SeveralStops(LlasaPolicy):
    """Ends at the stop id, and at the first two codes."""

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset({self.stop_id, self.first_code_id, self.first_code_id + 1})


def test_s29_any_of_several_stop_ids_ends_a_completion_that_counts_as_finished(policy: LlasaPolicy) -> None:
    several = SeveralStops(policy.llama, policy.tokenizer)
    completions = [each for group in engine(several).generate(requests(several, siblings=40)) for each in group]
    ends = {int(each.ids[-1, 0]) for each in completions if each.finish_reason is FinishReason.STOP}
    assert ends == several.stop_ids
    for each in completions:
        assert not several.stop_ids & set(each.ids[:-1, 0].tolist())
        assert (int(each.ids[-1, 0]) in several.stop_ids) == (each.finish_reason is FinishReason.STOP)


def test_s46_a_temperature_takes_effect_and_is_in_the_recorded_logprobs(policy: LlasaPolicy) -> None:
    surprisal = {
        temperature: np.concatenate(
            [
                each.rollout_logprobs.ravel()
                for group in engine(policy, temperature).generate(requests(policy, siblings=20))
                for each in group
            ]
        ).mean()
        for temperature in (0.1, 1.0, 2.0)
    }
    # Minus the mean log-prob estimates the entropy, at most ln 17 = 2.83 of 16 codes and a stop.
    assert -surprisal[0.1] < 0.5 < -surprisal[1.0] < -surprisal[2.0] < 2.84


def test_first_ids_follow_the_distribution(policy: LlasaPolicy) -> None:
    prompt = policy.prompt_ids(Utterance("u", "one"))
    draws = 4000
    group = engine(policy, batch_size=draws).generate([RolloutRequest(prompt, tuple((9, i) for i in range(draws)), 1)])[
        0
    ]
    counts = np.bincount(np.searchsorted(policy.legal_ids.numpy(), [c.ids[0, 0] for c in group]), minlength=17)
    logits = policy.llama(input_ids=torch.from_numpy(prompt)[None]).logits[0, -1, policy.legal_ids]
    expected = torch.softmax(logits, -1).detach().numpy() * draws
    # Chi-squared with 16 degrees of freedom exceeds 39 once in a thousand; the seeds are fixed.
    assert ((counts - expected) ** 2 / expected).sum() < 39


def test_s64_changed_weights_are_refused_until_they_are_published(policy: LlasaPolicy) -> None:
    built = build_policy(build_tokenizer(WORDS, 16), seed=1)
    made = engine(built)
    asked = requests(built)
    before = made.generate(asked)
    with torch.no_grad():
        for parameter in built.model.parameters():
            parameter.add_(0.05)
    with pytest.raises(EngineError, match="changed since they were published"):
        made.generate(asked)
    made.publish(4)
    fresh = made.generate(asked)
    assert any(
        not np.array_equal(old.rollout_logprobs, new.rollout_logprobs)
        for old, new in zip(before[1], fresh[1], strict=True)
    )


def test_s52_broken_weights_are_an_error_and_not_a_completion() -> None:
    built = build_policy(build_tokenizer(WORDS, 16), seed=1)
    with torch.no_grad():
        built.llama.model.norm.weight.fill_(torch.nan)
    with pytest.raises(EngineError, match="not finite"):
        engine(built).generate(requests(built))


def test_nothing_is_generated_before_weights_are_published(policy: LlasaPolicy) -> None:
    with pytest.raises(EngineError, match="published"):
        TorchEngine(policy, temperature=1.0, batch_size=4).generate(requests(policy))
