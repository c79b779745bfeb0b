"""Released checkpoints of transformers models, whole or not at all."""

from pathlib import Path
from typing import Any

import torch

from elocution.errors import CheckpointError
from elocution.loading import LOADING

__all__ = ["load_whole"]


def load_whole(kind: Any, folder: Path) -> Any:
    """A transformers model in fp32 for evaluation, from a local folder; every tensor must be there and be used.

    Raises: CheckpointError if it cannot be loaded, or tensors are missing or left over.
    """
    try:
        with LOADING:
            model, loading = kind.from_pretrained(
                folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"cannot load {folder} as {kind.__name__}: {error}") from error
    if wrong := {reason: sorted(map(str, keys)) for reason, keys in loading.items() if keys}:
        raise CheckpointError(f"the tensors in {folder} do not fit {kind.__name__}: {wrong}")
    return model.eval().requires_grad_(False)
