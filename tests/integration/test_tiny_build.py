"""The builder of the tiny stack, from templates to a checkpoint that loads, at a fraction of its size."""

from pathlib import Path

import pytest

from elocution.codecs.tiny import TinyCodec
from elocution.data.prompts import load_prompts
from elocution.export.cosyvoice import to_huggingface
from elocution.policies.cosyvoice import CosyVoice2Policy
from elocution.policies.llasa import LlasaPolicy
from elocution.tiny.build import BuildSettings, build
from elocution.tiny.pretrain import held_out_loss
from elocution.tiny.sentences import draw_sentences
from elocution.tiny.teaching import PretrainSettings
from elocution.types import Audio

SETTINGS = BuildSettings(
    taught=400,
    prompts=20,
    held_out=20,
    num_codes=64,
    codec_clips=100,
    pretraining=PretrainSettings(epochs=2, warmup_steps=4),
    cosyvoice=PretrainSettings(epochs=2, batch_size=24, learning_rate=1e-3, warmup_steps=4),
)


@pytest.mark.slow
def test_a_small_build_is_whole_learns_and_is_not_made_twice(tmp_path: Path) -> None:
    pytest.importorskip("hibari", reason="needs the extra tiny-build")
    pytest.importorskip("sklearn", reason="needs the extra tiny-build")
    build(tmp_path, SETTINGS, workers=2)
    policy = LlasaPolicy.from_pretrained(tmp_path / "llasa")
    codec = TinyCodec.from_pretrained(tmp_path / "codec")
    assert policy.num_codes == codec.codebook_size == 64
    sets = [
        load_prompts(tmp_path / "prompts" / name, languages=["en"], on_bad_row="stop", check_text=policy.check_text)
        for name in ("train.jsonl", "held_out.jsonl")
    ]
    texts = [{utterance.text for utterance in prompts.utterances} for prompts in sets]
    assert [len(found) for found in texts] == [20, 20]
    assert not texts[0] & texts[1]
    from elocution.tiny.speech import SpeechCorpus

    corpus = SpeechCorpus.load(tmp_path / "speech.npz")
    assert corpus.sentences == tuple(draw_sentences(440, SETTINGS.sentence_seed))
    codes = [codec.encode(Audio(corpus.clip(index), 16_000)) for index in range(420, 440)]
    assert held_out_loss(policy, corpus.sentences[420:], codes) < 3.9  # chance is ln 65 = 4.17
    done = to_huggingface(tmp_path / "cosyvoice2", tmp_path / "hf")
    assert done.ids.num_codes == 64
    second = CosyVoice2Policy.from_pretrained(tmp_path / "hf")
    assert held_out_loss(second, corpus.sentences[420:], codes) < 4.0  # chance is ln 67 = 4.20
    made = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*")}
    build(tmp_path, SETTINGS, workers=2)
    rewritten = {"train.jsonl", "held_out.jsonl", "bigram.arpa", "words.dict"}  # cheap, and not looked for
    again = {path: path.stat().st_mtime_ns for path in made}
    assert {path for path in made if again[path] != made[path] and path.name not in rewritten} == set()
