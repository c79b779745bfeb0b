"""How natural and clean a clip sounds, by models that predict a mean opinion score; most have their weights in their packages."""

import contextlib
import io
import pickle
import warnings
from collections.abc import Iterator

import torch

from elocution.errors import CheckpointError
from elocution.measures.loudness import is_silent
from elocution.measures.optional import NO_DEPS, import_optional, model_file, model_folder, without_torchaudio
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["DistillMos", "Dnsmos", "Utmos"]

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
        with without_torchaudio(), contextlib.redirect_stdout(io.StringIO()):
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


class Utmos:
    """UTMOS22's strong learner as the package utmos-pytorch runs it: a folder with its `utmos_state_dict.pt`. Clips pass one by
    one, because padding moves the score.

    Source: Saeki et al., arXiv:2204.02152.
    Raises: CheckpointError if tensors are missing or left over, of which the package says nothing.
    """

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        file = model_file(model_folder(path, "reward.utmos_path", "UTMOS"), "utmos_state_dict.pt")
        package = import_optional(
            "utmos_pytorch.utmos_torch", package="utmos-pytorch", install="pip install --no-deps utmos-pytorch"
        )
        try:
            found = torch.load(file, map_location="cpu", weights_only=True, mmap=True).keys()
        except (OSError, RuntimeError, ValueError, AttributeError, pickle.UnpicklingError) as error:
            raise CheckpointError(f"cannot load {file} as tensors: {error}") from error
        with torch.device("meta"), _without_future_warnings():
            expected = package.UTMOSModel().state_dict().keys()
        if wrong := sorted(found ^ expected):
            raise CheckpointError(
                f"the tensors in {file} do not fit UTMOS: {len(wrong)} missing or left over, such as {wrong[0]}"
            )
        with _without_future_warnings():
            self._model = package.UTMOSScoreTorch(str(file), device=device)
        self._device = device

    def rate(self, audio: Audio) -> dict[str, float]:
        """`utmos`: mean opinion score, 1 to 5.

        Raises: ValueError if there is next to nothing to hear.
        """
        samples = torch.tensor(samples_at(_audible(audio), _SAMPLE_RATE), device=self._device)
        return {"utmos": float(self._model.score(samples)[0])}


@contextlib.contextmanager
def _without_future_warnings() -> Iterator[None]:
    """UTMOS's layers are normalised by a function of torch that will be replaced."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield
