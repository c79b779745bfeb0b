"""emotion2vec and UTMOS with random weights in their packages' own layouts; skipped where a package is absent."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from elocution.config.rewards import RewardConfig
from elocution.errors import CheckpointError, ConfigError, MissingDependency
from elocution.measures.facts import Findings, SpokenText
from elocution.measures.listener import build_listener
from elocution.types import Audio

LABELS = ["生气/angry", "开心/happy", "中立/neutral", "难过/sad", "<unk>"]
ALIBI = """
      use_alibi_encoder: true
      alibi_scale: 1.0
      learned_alibi: false
      learned_alibi_scale: true
      learned_alibi_scale_per_head: true
      learned_alibi_scale_per_layer: false
      num_alibi_heads: 2
      alibi_max_pos: null
"""
CONFIG = f"""
model: Emotion2vec
model_conf:
  loss_beta: 0.0
  loss_scale: null
  depth: 1
  start_drop_path_rate: 0.0
  end_drop_path_rate: 0.0
  num_heads: 2
  norm_eps: 1.0e-05
  norm_affine: true
  encoder_dropout: 0.0
  post_mlp_drop: 0.0
  attention_dropout: 0.0
  activation_dropout: 0.0
  dropout_input: 0.0
  layerdrop: 0.0
  embed_dim: 16
  mlp_ratio: 2.0
  layer_norm_first: false
  average_top_k_layers: 1
  end_of_block_targets: false
  clone_batch: 1
  normalize: true
  modalities:
    audio:
      type: AUDIO
      prenet_depth: 1
      prenet_layerdrop: 0.0
      prenet_dropout: 0.0
      start_drop_path_rate: 0.0
      end_drop_path_rate: 0.0
      num_extra_tokens: 2
      init_extra_token_zero: true
      mask_noise_std: 0.01
      inverse_mask: false
      keep_masked_pct: 0.0
      local_grad_mult: 1.0
      ema_local_encoder: false
      model_depth: 1
      extractor_mode: layer_norm
      feature_encoder_spec: "[(8, 10, 5)] + [(8, 3, 2)] * 4 + [(8, 2, 2)] * 2"
      conv_pos_width: 9
      conv_pos_groups: 2
      conv_pos_depth: 2
      conv_pos_pre_ln: false
      decoder: null
{ALIBI}
tokenizer: CharTokenizer
tokenizer_conf:
  unk_symbol: <unk>
  split_with_space: true
"""


def need(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}; docs/rewards.md says how to install it")


def measure(config: RewardConfig, fact: str, audio: Audio, emotion: str = "") -> Findings:
    listen = build_listener([fact], config)
    return listen(SpokenText(audio, "one", "en", np.zeros((0, 1), np.int64), emotion=emotion))


@pytest.fixture(scope="module")
def emotion2vec(tmp_path_factory: pytest.TempPathFactory) -> RewardConfig:
    need("funasr")
    from funasr.models.emotion2vec.model import Emotion2vec
    from omegaconf import OmegaConf

    folder = tmp_path_factory.mktemp("emotion2vec")
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "tokens.txt").write_text("\n".join(LABELS))
    (folder / "configuration.json").write_text(
        '{"file_path_metas": {"init_param": "model.pt", "config": "config.yaml",'
        ' "tokenizer_conf": {"token_list": "tokens.txt"}}}'
    )
    torch.manual_seed(0)
    model = Emotion2vec(model_conf=OmegaConf.create(CONFIG).model_conf, vocab_size=len(LABELS))
    torch.save(model.state_dict(), folder / "model.pt")
    return RewardConfig(emotion_path=str(folder))


@pytest.mark.filterwarnings("ignore")  # funasr's own
def test_the_probability_of_the_prompts_emotion_is_one_of_shares_that_sum_to_one(
    emotion2vec: RewardConfig, spoken: dict[str, Audio]
) -> None:
    clip = next(iter(spoken.values()))
    listen = build_listener(["emotion_probability"], emotion2vec)
    nothing = np.zeros((0, 1), np.int64)
    names = [label.rpartition("/")[2] for label in LABELS]
    found = listen.together([SpokenText(clip, "one", "en", nothing, emotion=name) for name in [*names, "Happy"]])
    shares = [one.facts["emotion_probability"] for one in found]
    assert sum(shares[:-1]) == pytest.approx(1.0, abs=1e-4)
    assert shares[-1] == shares[1]
    for emotion, reason in (("jolly", "does not know 'jolly'; it knows angry, happy"), ("", "names no emotion")):
        one = listen(SpokenText(clip, "one", "en", nothing, emotion=emotion))
        assert reason in one.failures["emotion_probability"]


@pytest.mark.slow  # 95 million random weights
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of weight_norm, which the package uses
def test_utmos_gives_each_clip_its_own_score_and_refuses_other_tensors(
    tmp_path: Path, spoken: dict[str, Audio]
) -> None:
    need("utmos_pytorch")
    from utmos_pytorch.utmos_torch import UTMOSModel

    torch.manual_seed(0)
    state = UTMOSModel().state_dict()
    torch.save(state, tmp_path / "utmos_state_dict.pt")
    config = RewardConfig(utmos_path=str(tmp_path))
    scores = [measure(config, "utmos", clip).facts["utmos"] for clip in list(spoken.values())[:2]]
    assert scores[0] != scores[1]
    assert measure(config, "utmos", Audio(np.zeros(16_000, np.float32), 16_000)).facts == {}
    torch.save(dict(list(state.items())[1:]), tmp_path / "utmos_state_dict.pt")
    with pytest.raises(CheckpointError, match="do not fit UTMOS: 1 missing or left over"):
        build_listener(["utmos"], config)


def test_a_file_that_holds_no_tensors_is_no_utmos(tmp_path: Path) -> None:
    need("utmos_pytorch")
    (tmp_path / "utmos_state_dict.pt").write_bytes(b"nothing of the kind")
    with pytest.raises(CheckpointError, match="as tensors"):
        build_listener(["utmos"], RewardConfig(utmos_path=str(tmp_path)))


@pytest.mark.parametrize(
    ("fact", "key", "package", "install"),
    [
        ("utmos", "utmos_path", "utmos_pytorch", "pip install --no-deps utmos-pytorch"),
        ("emotion_probability", "emotion_path", "funasr", "pip install funasr"),
    ],
)
def test_a_missing_folder_names_its_key_and_a_missing_package_how_to_install_it(
    fact: str, key: str, package: str, install: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"set reward\.{key}"):
        build_listener([fact], RewardConfig())
    if importlib.util.find_spec(package) is None:
        (tmp_path / "utmos_state_dict.pt").touch()
        with pytest.raises(MissingDependency, match=install):
            build_listener([fact], RewardConfig.model_validate({key: str(tmp_path)}))
