import json
import subprocess
import sys

import dill
import torch

from elocution.rollout.sglang_legal import LegalRanges, legal_ranges, processor_string


def test_gapless_runs_become_pairs() -> None:
    assert legal_ranges([3, 7, 8, 9]) == [3, 3, 7, 9]


def test_each_row_keeps_its_own_legal_ids_alone() -> None:
    logits = torch.arange(12.0).reshape(2, 6)
    masked = LegalRanges()(logits, [{"legal_ranges": [0, 1, 5, 5]}, {"legal_ranges": [2, 2]}])
    inf = float("inf")
    assert masked.tolist() == [[0, 1, -inf, -inf, -inf, 5], [-inf, -inf, 8, -inf, -inf, -inf]]


def test_rows_with_the_same_ranges_share_one_mask() -> None:
    masked = LegalRanges()(torch.zeros(3, 4), [{"legal_ranges": [1, 2]}] * 3)
    assert masked.isinf().tolist() == [[True, False, False, True]] * 3


def test_the_server_finds_the_class_by_its_import_path() -> None:
    # CustomLogitProcessor.from_str does this.
    assert dill.loads(bytes.fromhex(json.loads(processor_string())["callable"])) is LegalRanges


def test_the_server_needs_nothing_but_torch_for_it() -> None:
    code = (
        "import sys, elocution.rollout.sglang_legal; "
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'transformers', 'httpx2', 'soundfile')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
