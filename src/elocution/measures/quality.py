"""How natural and clean a clip sounds, by models that predict a mean opinion score; their weights are in their packages."""

import contextlib
import io
import sys
import types
from collections.abc import Iterator

import torch

from elocution.measures.loudness import is_silent
from elocution.measures.optional import NO_DEPS, import_optional
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["DistillMos", "Dnsmos"]

_SAMPLE_RATE = 16_000
_SHORTEST_S = 0.3


def _audible(audio: Audio) -> Audio:
    if audio.duration_s < _SHORTEST_S or is_silent(audio):
        raise ValueError(f"the quality of a clip that is silent or shorter than {_SHORTEST_S} s is undefined")
    return audio


class DistillMos:
    """Microsoft's distilled speech quality model.

    Source: Stahl and Gamper, "Distillation and Pruning for Scalable Self-Supervised Representation-Based Speech Quality
    Assessment", ICASSP 2025.
    """

    def __init__(self) -> None:
        with _without_torchaudio(), contextlib.redirect_stdout(io.StringIO()):
            package = import_optional("distillmos", package="distillmos", install=f"{NO_DEPS} distillmos xls-r-sqa")
            self._model = package.ConvTransformerSQAModel().eval().requires_grad_(False)

    @torch.inference_mode()
    def rate(self, audio: Audio) -> dict[str, float]:
        """`distillmos`: mean opinion score, 1 to 5.

        Raises: ValueError if there is next to nothing to hear.
        """
        samples = samples_at(_audible(audio), _SAMPLE_RATE)
        return {"distillmos": float(self._model(torch.tensor(samples)[None]).mean())}


class Dnsmos:
    """DNSMOS P.835 and P.808 of the package speechmos; a clip below 9 s is repeated to that length.

    Source: Reddy et al., arXiv:2110.01763.
    """

    def __init__(self) -> None:
        self._package = import_optional("speechmos.dnsmos", package="speechmos", install=f"{NO_DEPS} speechmos")

    def rate(self, audio: Audio) -> dict[str, float]:
        """`dnsmos` (overall, P.835) and `dnsmos_p808`: mean opinion scores, 1 to 5.

        Raises: ValueError if there is next to nothing to hear.
        """
        samples = samples_at(_audible(audio), _SAMPLE_RATE).clip(-1.0, 1.0)
        found = self._package.run(samples, sr=_SAMPLE_RATE)
        return {"dnsmos": float(found["ovrl_mos"]), "dnsmos_p808": float(found["p808_mos"])}


@contextlib.contextmanager
def _without_torchaudio() -> Iterator[None]:
    """distillmos imports torchaudio for its command line alone, and PyPI's builds of it do not fit every torch."""
    absent = "torchaudio" not in sys.modules
    if absent:
        sys.modules["torchaudio"] = types.ModuleType("torchaudio")
    try:
        yield
    finally:
        if absent:
            del sys.modules["torchaudio"]
