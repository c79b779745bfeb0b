"""The sections of the configuration tree that say what a reward listens for, and where. Imports no torch."""

from typing import Literal, Self

from pydantic import Field, model_validator

from elocution.config.strict import StrictConfig

__all__ = ["ComponentConfig", "RemoteRewardConfig", "RewardConfig", "SelfTestConfig"]


class ComponentConfig(StrictConfig):
    """One part of a composite reward: a measure made a utility in [0, 1], higher is better."""

    fact: str
    """Measure: a name of the table in docs/rewards.md."""
    weight: float = Field(default=1.0, gt=0)
    """Its weight; weights are divided by their sum."""
    utility: Literal["tanh", "power", "exp", "linear", "band"]
    """How the measure becomes a utility: `tanh` 1 - tanh(scale x); `power` exp(-scale x^power); `exp` exp(-x / scale);
    `linear` 0 at `low`, 1 at `high`; `band` 1 from `low` to `high`, falling to 0 within `scale` outside."""
    scale: float = Field(default=1.0, gt=0)
    """Steepness or width, as `utility` says."""
    power: float = Field(default=1.5, gt=0)
    """Exponent of `power`."""
    low: float = 0.0
    """Lower end of `linear` and `band`."""
    high: float = 1.0
    """Upper end of `linear` and `band`; `linear` may fall from `low` to `high`."""

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        if (self.utility == "band" and self.low > self.high) or (self.utility == "linear" and self.low == self.high):
            raise ValueError(f"low = {self.low} and high = {self.high} leave nothing between them")
        return self


class SelfTestConfig(StrictConfig):
    """What a scorer must hear before it is trusted: by the reward server when it starts, by its client before step 1."""

    audio: str = "builtin:tiny-clip"
    """A clip that is known to be good: an audio file, or `builtin:NAME`; empty for no test."""
    text: str = "the little brother was young"
    """The words of the clip; the scorer must hear exactly these."""
    language: str = "en"
    """Language of the text, ISO 639-1."""
    min_reward: float = 0.5
    """The clip must score at least this, and noise less."""


class RemoteRewardConfig(StrictConfig):
    """Where the reward `remote` finds its servers, and how patient it is with them."""

    urls: tuple[str, ...] = Field(default=(), strict=False)
    """Reward servers, for example `["http://127.0.0.1:8000"]`; all must run the same reward."""
    model: str = "token2wav_asr_wav"
    """Name of the model that takes waveforms: the server's model name followed by `_wav`."""
    token_env: str = ""
    """Environment variable that holds the bearer token; empty for none."""
    deadline_s: float = Field(default=200.0, gt=0, le=86_400)
    """Longest time to wait for a score, retries included, seconds; above twice the server's `reward.timeout_s`."""
    retries: int = Field(default=3, ge=0, le=100)
    """How often a request is sent again before its clips count as unscored."""
    clips_per_request: int = Field(default=4, ge=1, le=1024)
    """Clips in one request; the server's `reward_server.max_batch_size` or fewer."""
    concurrency: int = Field(default=16, ge=1, le=1024)
    """Requests under way at once, to all servers together."""


class RewardConfig(StrictConfig):
    """What makes one completion better than its siblings."""

    type: str = "wer_nll"
    """Reward: a name of the table, or `module:Class`."""
    components: dict[str, ComponentConfig] = Field(default={})
    """With `composite`: its parts, each a section `[reward.components.NAME]`."""
    combine: Literal["harmonic", "sum"] = "harmonic"
    """With `composite`: weighted harmonic mean of the utilities, or their weighted sum."""
    gate_beta: float = Field(default=0.0, ge=0)
    """With `composite`: the reward is multiplied by exp(-gate_beta * WER)."""
    on_missing: Literal["renormalize", "drop"] = "drop"
    """With `composite`: a completion of which a part could not be measured is left out, or judged by the other parts."""
    alpha_wer: float = Field(default=3.0, gt=0)
    """How fast the WER utility falls: 1 - tanh(alpha_wer * WER)."""
    alpha_nll: float = Field(default=3.0, gt=0)
    """Scale of the likelihood utility, nats: exp(-NLL / alpha_nll)."""
    lambda_wer: float = Field(default=0.6, gt=0)
    """Weight of the WER utility in the harmonic mean."""
    lambda_nll: float = Field(default=0.4, gt=0)
    """Weight of the likelihood utility in the harmonic mean."""
    metric: Literal["wer", "cer", "pinyin"] = "wer"
    """What the errors of `wer_nll` are counted in: words (`wer`; in Chinese, Japanese and Korean characters), every letter, or
    in Chinese syllables."""
    normalizer: Literal["spoken", "seed_tts"] = "spoken"
    """With `wer_nll`: texts are compared as they are spoken, or by the strict public rule of seed-tts-eval; docs/text.md."""
    asr: str = "pocketsphinx-bigram"
    """Recogniser behind the WER."""
    nll: str = "hama"
    """Phoneme recogniser behind the likelihood."""
    workers: int = Field(default=0, ge=0, le=256)
    """Scoring processes; 0 means one for each core."""
    timeout_s: float = Field(default=60.0, gt=0, le=86_400)
    """Longest time that one clip may take to score, seconds."""
    call_timeout_s: float = Field(default=1800.0, gt=0, le=604_800)
    """Longest time that the reward may take to be built, to start, or to score all completions of a step, seconds."""
    max_unscored_share: float = Field(default=0.2, ge=0, le=1)
    """The run stops if more than this share of a step's completions could not be scored."""
    self_test: SelfTestConfig = SelfTestConfig()
    remote: RemoteRewardConfig = RemoteRewardConfig()

    @model_validator(mode="after")
    def _check_comparison(self) -> Self:
        if self.normalizer == "seed_tts" and self.metric != "wer":
            raise ValueError(
                f"normalizer = 'seed_tts' counts words, and in Chinese characters, not metric = {self.metric!r}"
            )
        return self
