"""pocketsphinx as a transcriber: an open-vocabulary judge, and a bigram over the tiny checkpoints' own words."""

from pathlib import Path
from typing import Any

import numpy as np
from pocketsphinx import Decoder, get_model_path

from elocution.errors import RewardUnavailable
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["BigramTranscriber", "OpenTranscriber"]

_SAMPLE_RATE = 16_000
_SHORTEST_WORD_S = 0.1
_TINY = Path(__file__).parents[1] / "assets" / "tiny" / "recogniser"


class _PocketsphinxTranscriber:
    """One decoder that remembers nothing of the clips before.

    Cepstral means are taken over each clip. The front end is made anew for each, because its noise estimate lives on;
    all senones are computed in each frame, because the others would keep the best Gaussians of an earlier clip.
    """

    languages = ("en",)

    def __init__(self, **options: Any) -> None:
        model = Path(get_model_path("en-us"))
        defaults = {"dict": str(model / "cmudict-en-us.dict"), "lm": str(model / "en-us.lm.bin")}
        self._decoder = Decoder(
            hmm=str(model / "en-us"),
            loglevel="FATAL",
            cmn="batch",
            compallsen=True,
            fwdflat=False,
            **(defaults | options),
        )

    def transcribe(self, audio: Audio) -> str:
        """The words heard; none in a clip that is shorter than any word."""
        samples = samples_at(audio, _SAMPLE_RATE)
        if len(samples) < _SHORTEST_WORD_S * _SAMPLE_RATE:
            return ""
        pcm = (samples * 32767).clip(-32768, 32767).astype(np.int16).tobytes()
        self._decoder.reinit_feat()
        self._decoder.start_utt()
        try:
            self._decoder.process_raw(pcm, full_utt=True)
        finally:
            self._decoder.end_utt()
        hypothesis = self._decoder.hyp()
        return str(hypothesis.hypstr) if hypothesis else ""


class OpenTranscriber(_PocketsphinxTranscriber):
    """The package's own dictionary of 130 000 words and its general trigram."""

    def __init__(self) -> None:
        super().__init__(maxhmmpf=3000)


class BigramTranscriber(_PocketsphinxTranscriber):
    """The words of the tiny checkpoints and which of them follow each other; coarse, for speed.

    Raises: RewardUnavailable if the shipped language model is missing.
    """

    def __init__(self) -> None:
        for name in ("words.dict", "bigram.arpa"):
            if not (_TINY / name).is_file():
                raise RewardUnavailable(f"the recogniser file {_TINY / name} is missing; reinstall elocution")
        super().__init__(
            dict=str(_TINY / "words.dict"),
            lm=str(_TINY / "bigram.arpa"),
            maxhmmpf=1000,
            ds=2,
            topn=2,
            pl_window=0,
            bestpath=False,
        )
