"""Prints as JSON what an update of the tiny model holds in tensors, by the names of `MemoryPlan`: run in a process of its own.

Arguments: settings, then the length of prompt and completions.
"""

import gc
import json
import sys

import numpy as np
import torch

from elocution.config.load import load_config
from elocution.train.batch import LearnerBatch, advantages_of, micro_batches, minibatches
from elocution.train.setup import build_parts
from elocution.types import Completion, FinishReason, Outcome, Rollout, RolloutGroup, Score


def live() -> int:
    """Bytes in the storages of all tensors there are."""
    gc.collect()
    # By type, for `isinstance` would ask odd objects of torch for their class, at which they warn.
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in tensors}
    return sum(storages.values())


def main(settings: list[str], prompt: int, completion: int) -> dict[str, float]:
    config = load_config(None, settings)
    nothing = live()
    parts = build_parts(config)
    codec = {id(each): each.nbytes for each in vars(parts.codec).values() if isinstance(each, torch.Tensor)}
    before = live()
    weights = before - nothing - sum(codec.values())
    engines = (parts.engines.rollout, parts.engines.evaluation)
    for engine in engines:
        engine.publish(0)
    sampling = live()
    ids = np.full(prompt, parts.policy.prompt_ids(parts.held_out[0])[0], np.int64)
    counts = (config.train.prompts_per_step * config.rollout.group_size, config.eval.sentences)
    for engine, count in zip(engines, counts, strict=True):
        model = engine._model  # type: ignore[attr-defined]
        rows = min(config.rollout.batch_size, count)
        model.start(rows, prompt + completion)
        model.join([ids], torch.zeros(rows, dtype=torch.long))
    cache = live()

    code = int(parts.policy.legal_ids[0])
    utterance = parts.held_out[0]
    drawn = Completion(
        np.full((completion, 1), code, np.int64), np.zeros((completion, 1), np.float32), FinishReason.STOP, 0
    )
    rollouts = tuple(
        Rollout(utterance, drawn, np.zeros((1, 1), np.int64), None, Outcome.SPEECH)
        for _ in range(config.rollout.group_size)
    )
    scores = tuple(Score(float(index)) for index in range(config.rollout.group_size))
    groups = [RolloutGroup(utterance, ids, rollouts, scores)] * config.train.prompts_per_step
    (part,) = minibatches(groups, advantages_of(groups, std_floor=0.01), 1)
    batches: list[LearnerBatch] = micro_batches(part, config.train.micro_batch_tokens)
    own = {each.untyped_storage().data_ptr() for each in parts.policy.model.parameters()}
    saved: dict[int, int] = {}
    kept: list[torch.Tensor] = []  # so that no address comes twice

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        parts.learner.update(batches[:1], on_policy=False)
    kept.clear()
    parts.learner.update(batches[:1], on_policy=False)
    after = live()
    return {
        "weights": weights,
        "sampling_weights": sampling - before,
        "kv_cache": cache - sampling,
        "activations": sum(saved.values()),
        "learned": after - cache,
    }


if __name__ == "__main__":
    *settings, prompt, completion = sys.argv[1:]
    print(json.dumps(main(settings, int(prompt), int(completion))))
