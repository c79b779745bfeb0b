"""Checkpoint folders of models that listen, with random weights in the released layouts: small, for tests of what loads them."""

from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import (
    ClapAudioConfig,
    ClapConfig,
    ClapFeatureExtractor,
    ClapModel,
    ClapProcessor,
    ClapTextConfig,
    RobertaTokenizer,
    Wav2Vec2FeatureExtractor,
    WavLMConfig,
    WavLMForXVector,
)

__all__ = ["save_random_clap", "save_random_wavlm"]


def save_random_clap(folder: Path) -> None:
    """A CLAP in the layout of `laion/clap-htsat-unfused`, the same each time."""
    text = ClapTextConfig(
        vocab_size=300,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        projection_dim=8,
    )
    audio = ClapAudioConfig(
        hidden_size=16,
        patch_embeds_hidden_size=8,
        depths=[1, 1],
        num_attention_heads=[1, 2],
        num_hidden_layers=2,
        projection_dim=8,
        num_mel_bins=64,
    )
    config = ClapConfig(text_config=text.to_dict(), audio_config=audio.to_dict(), projection_dim=8)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        ClapModel(config).save_pretrained(folder)
    letters = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = RobertaTokenizer(vocab={letter: index for index, letter in enumerate(letters)}, merges=[])
    ClapProcessor(ClapFeatureExtractor(truncation="rand_trunc"), tokenizer).save_pretrained(folder)


def save_random_wavlm(folder: Path) -> None:
    """A WavLM with an x-vector head in the layout of `microsoft/wavlm-base-plus-sv`, the same each time."""
    config = WavLMConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        conv_dim=[16] * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
        tdnn_dim=[24, 24, 24, 24, 48],
        xvector_output_dim=12,
        use_weighted_layer_sum=True,
    )
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        WavLMForXVector(config).save_pretrained(folder)
    Wav2Vec2FeatureExtractor(do_normalize=True, return_attention_mask=True).save_pretrained(folder)
