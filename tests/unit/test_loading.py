from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from transformers import PreTrainedModel

from elocution.policies import load_policy
from elocution.testing.policies import small_llasa


def test_threads_that_load_at_once_leave_the_classes_of_transformers_as_they_were(tmp_path: Path) -> None:
    small_llasa().save_pretrained(str(tmp_path))
    before = PreTrainedModel.tie_weights, PreTrainedModel.init_weights
    with ThreadPoolExecutor(8) as pool:
        policies = list(pool.map(lambda _: load_policy("llasa", tmp_path), range(24)))
    assert (PreTrainedModel.tie_weights, PreTrainedModel.init_weights) == before
    for policy in policies:
        assert policy.model.get_output_embeddings().weight is policy.model.get_input_embeddings().weight
