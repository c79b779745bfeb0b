"""What the README says of the tiny stack: the codec's loss of intelligibility and its speed, what the checkpoints speak.

Needs a folder made by `elocution tiny build`, for the source speech: `python benchmarks/tiny.py build/tiny`. The shipped
codec and checkpoints are measured, or with `--built` those of the folder.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from elocution.assets import resolve_path
from elocution.codecs.tiny import TinyCodec
from elocution.eval.bootstrap import bootstrap_word_error_rate
from elocution.export.cosyvoice import to_huggingface
from elocution.measures.error_rates import corpus_error_rate, word_error_rate
from elocution.policies import load_policy
from elocution.policies.base import Policy
from elocution.rewards.pool import ScoringPool, transcriber_factory
from elocution.rollout.speak import Speaker
from elocution.rollout.torch_engine import TorchEngine
from elocution.text.normalize import normalize
from elocution.tiny.speech import SAMPLE_RATE, SpeechCorpus
from elocution.types import Audio, Utterance

CLIPS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--built", action="store_true", help="measure the folder's codec and checkpoint")
    options = parser.parse_args()
    torch.set_num_threads(1)
    codec = TinyCodec.from_pretrained(options.folder / "codec" if options.built else resolve_path("builtin:tiny-codec"))
    corpus = SpeechCorpus.load(options.folder / "speech.npz")
    first = len(corpus.sentences) - 600  # the held-out sentences stand last
    texts = list(corpus.sentences[first : first + CLIPS])
    original = [Audio(corpus.clip(first + index), SAMPLE_RATE) for index in range(CLIPS)]
    codes = [codec.encode(clip) for clip in original]
    started = time.process_time()
    resynthesis = codec.decode(codes)
    spent = time.process_time() - started
    print(f"codec decodes {sum(clip.duration_s for clip in original) / spent:.0f}x real time on one core")
    utterances = [Utterance(str(index), text) for index, text in enumerate(texts)]
    spoken = {"original clips": original, "through the codec": resynthesis}
    silence = Audio(torch.zeros(SAMPLE_RATE).numpy(), SAMPLE_RATE)
    for name, policy in load_policies(options.folder if options.built else None):
        for temperature in (0.3, 1.0):
            engine = TorchEngine(policy, temperature=temperature, batch_size=128)
            engine.publish(0)
            speaker = Speaker(policy, engine, codec, max_codes_per_char=4.0, min_codes=40)
            groups = speaker.speak(utterances, [[(7, index)] for index in range(CLIPS)])
            spoken[f"{name} at temperature {temperature}"] = [group.rollouts[0].audio or silence for group in groups]
    with ScoringPool(transcriber_factory("pocketsphinx-open")) as judge:
        for name, clips in spoken.items():
            heard = judge.map([(clip, "en") for clip in clips])
            errors = [
                word_error_rate(text, normalize(transcript, "en"))
                for text, transcript in zip(texts, heard, strict=True)
                if isinstance(transcript, str)
            ]
            low, high = bootstrap_word_error_rate(errors, samples=2000, seed=0)
            rate = corpus_error_rate(errors)
            print(f"{name:<30} WER {100 * rate:5.1f} % [{100 * low:.1f}, {100 * high:.1f}], {len(errors)} clips")


def load_policies(built: Path | None) -> Iterator[tuple[str, Policy]]:
    """Both checkpoints by family, shipped or in the folder `built`."""
    yield "llasa", load_policy("llasa", built / "llasa" if built else resolve_path("builtin:tiny-llasa"))
    native = built / "cosyvoice2" if built else resolve_path("builtin:tiny-cosyvoice2")
    with TemporaryDirectory() as folder:
        to_huggingface(native, Path(folder) / "hf")
        yield "cosyvoice2", load_policy("cosyvoice2", Path(folder) / "hf")


if __name__ == "__main__":
    main()
