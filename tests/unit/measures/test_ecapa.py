"""speechbrain's ECAPA-TDNN with random weights in the layout of spkrec-ecapa-voxceleb; skipped where the package is absent."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from elocution.measures import load_speaker_encoder
from elocution.measures.optional import import_optional, without_torchaudio
from elocution.types import Audio

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("speechbrain") is None, reason="needs speechbrain: make test-measures"),
    pytest.mark.filterwarnings("ignore"),  # the package's own
]
SHAPE = {"channels": [16, 16, 16, 16, 48], "kernel_sizes": [5, 3, 3, 3, 1], "dilations": [1, 2, 3, 4, 1]}
SHAPE |= {"attention_channels": 8, "lin_neurons": 12}
HYPERPARAMS = f"""
# Where the released file's tensors are; nothing of it may be asked for.
pretrained_path: speechbrain/spkrec-ecapa-voxceleb
n_mels: 80
n_classes: 3
compute_features: !new:speechbrain.lobes.features.Fbank
    n_mels: !ref <n_mels>
mean_var_norm: !new:speechbrain.processing.features.InputNormalization
    norm_type: sentence
    std_norm: False
embedding_model: !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN
    input_size: !ref <n_mels>
    {"".join(f"{key}: {value}" + chr(10) + "    " for key, value in SHAPE.items()).rstrip()}
classifier: !new:speechbrain.lobes.models.ECAPA_TDNN.Classifier
    input_size: 12
    out_neurons: !ref <n_classes>
mean_var_norm_emb: !new:speechbrain.processing.features.InputNormalization
    norm_type: global
    std_norm: False
modules:
    compute_features: !ref <compute_features>
    mean_var_norm: !ref <mean_var_norm>
    embedding_model: !ref <embedding_model>
    mean_var_norm_emb: !ref <mean_var_norm_emb>
    classifier: !ref <classifier>
label_encoder: !new:speechbrain.dataio.encoder.CategoricalEncoder
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
    loadables:
        embedding_model: !ref <embedding_model>
        mean_var_norm_emb: !ref <mean_var_norm_emb>
        classifier: !ref <classifier>
        label_encoder: !ref <label_encoder>
    paths:
        embedding_model: !ref <pretrained_path>/embedding_model.ckpt
        mean_var_norm_emb: !ref <pretrained_path>/mean_var_norm_emb.ckpt
        classifier: !ref <pretrained_path>/classifier.ckpt
        label_encoder: !ref <pretrained_path>/label_encoder.txt
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with without_torchaudio():
        lobe = import_optional("speechbrain.lobes.models.ECAPA_TDNN", package="speechbrain", install="")
        features = import_optional("speechbrain.processing.features", package="speechbrain", install="")
    made = tmp_path_factory.mktemp("ecapa")
    (made / "hyperparams.yaml").write_text(HYPERPARAMS)
    (made / "label_encoder.txt").write_text("'a' => 0\n'b' => 1\n'c' => 2\n================\n'starting_index' => 0\n")
    torch.manual_seed(0)
    torch.save(lobe.ECAPA_TDNN(80, **SHAPE).state_dict(), made / "embedding_model.ckpt")
    torch.save(lobe.Classifier(12, out_neurons=3).state_dict(), made / "classifier.ckpt")
    norm = features.InputNormalization(norm_type="global", std_norm=False)
    norm(torch.randn(2, 1, 12), torch.ones(2))
    norm._save(str(made / "mean_var_norm_emb.ckpt"))
    return made


def test_a_released_folder_is_loaded_without_its_hub_and_left_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*asked: object, **further: object) -> None:
        raise AssertionError(f"the hub was asked for {asked or further}")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", ask)
    before = {entry.name: entry.stat().st_mtime_ns for entry in folder.iterdir()}
    load_speaker_encoder("ecapa", path=str(folder))
    assert {entry.name: entry.stat().st_mtime_ns for entry in folder.iterdir()} == before


def test_clips_of_unequal_length_embed_as_alone(folder: Path, spoken: dict[str, Audio]) -> None:
    encoder = load_speaker_encoder("ecapa", path=str(folder))
    clips = list(spoken.values())[:3]
    clips += [Audio(clips[0].samples[:8000], clips[0].sample_rate), clips[0]]
    together = encoder.embed(clips)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-5)
    for clip, row in zip(clips, together, strict=True):
        np.testing.assert_allclose(encoder.embed([clip])[0], row, atol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 1e-3
