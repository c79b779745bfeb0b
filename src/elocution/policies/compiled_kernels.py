"""The same parts of a decode step in C (step_kernels.c), compiled for this CPU by the compiler of the system: fp32, one thread."""

import ctypes
import logging
import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

import torch
from torch import Tensor

from elocution.errors import EngineError

__all__ = ["LANES", "CompiledKernels", "can_compile"]

logger = logging.getLogger(__name__)

LANES = 16
"""A cache must be a multiple of so many positions long; as in step_kernels.c."""

_FLAGS = ("-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")


class CompiledKernels:
    """`StepKernels` for fp32 on a CPU; each row attends over its own positions alone. Caches are multiples of `LANES` long.

    Raises: EngineError if there is no C compiler, or it fails.
    """

    def __init__(self, num_kv_heads: int, num_heads: int, head_dim: int, eps: float) -> None:
        library = _load(head_dim, num_heads // num_kv_heads, eps)
        self._attend, self._norm = library.attend, library.rms_norm
        self._num_kv_heads, self._group = num_kv_heads, num_heads // num_kv_heads
        self._places = self._cos = self._sin = self._scratch = torch.empty(0, device="cpu")

    def begin(self, places: Tensor, cos: Tensor, sin: Tensor) -> None:
        self._places, self._cos, self._sin = places, cos, sin
        self._scratch = cos.new_empty(self._group, len(cos))

    def attend(self, heads: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        rows, _, head_dim = heads.shape
        assert keys.shape[-1] % LANES == 0
        assert keys.shape[-1] == len(self._cos)
        found = heads.new_empty(rows, self._num_kv_heads * self._group * head_dim)
        tensors = (heads, self._cos, self._sin, self._places, keys, values, self._scratch, found)
        assert all(tensor.is_contiguous() for tensor in tensors)
        self._attend(rows, self._num_kv_heads, keys.shape[-1], *(tensor.data_ptr() for tensor in tensors))
        return found

    def norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        normed = torch.empty_like(hidden)
        self._norm(*hidden.shape, hidden.data_ptr(), weight.data_ptr(), normed.data_ptr())
        return normed


@lru_cache
def can_compile(num_kv_heads: int, num_heads: int, head_dim: int, eps: float) -> bool:
    """Whether there can be `CompiledKernels` of these sizes; says once why not."""
    try:
        CompiledKernels(num_kv_heads, num_heads, head_dim, eps)
    except EngineError as error:
        logger.warning("completions are drawn without compiled kernels, which takes longer: %s", error)
        return False
    return True


@lru_cache
def _load(head_dim: int, group: int, eps: float) -> ctypes.CDLL:
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        raise EngineError("there is no C compiler `cc` on PATH, and CC names none")
    constants = (f"-DHEAD_DIM={head_dim}", f"-DGROUP={group}", f"-DEPSILON={eps}f")
    with as_file(files("elocution.policies") / "step_kernels.c") as source, tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "step_kernels.so"
        command = [compiler, *_FLAGS, *constants, str(source), "-o", str(target), "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
            library = ctypes.CDLL(str(target))
        except subprocess.CalledProcessError as error:
            raise EngineError(f"{' '.join(command)} failed: {error.stderr.strip()[-500:]}") from error
        except OSError as error:
            raise EngineError(f"{compiler} cannot be run, or what it made cannot be loaded: {error}") from error
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.attend.argtypes = [number] * 3 + [pointer] * 8
    library.rms_norm.argtypes = [number] * 2 + [pointer] * 3
    library.attend.restype = library.rms_norm.restype = None
    return library
