"""The sections of the configuration tree that say what a reward listens for, and where. Imports no torch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from elocution.config.strict import StrictConfig

__all__ = [
    "ComponentConfig",
    "ConstraintConfig",
    "RecogniserConfig",
    "RemoteRewardConfig",
    "RewardConfig",
    "SelfTestConfig",
]


class ComponentConfig(StrictConfig):
    """One part of a composite reward: a measure made a utility in [0, 1], higher is better."""

    fact: str
    """Measure: a name of the table in docs/rewards.md, or `module:Class`, a reward of your own whose value it is."""
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


class ConstraintConfig(StrictConfig):
    """A measure that must stay near what it was before training: its limit is `share` of that, and `slack` beyond."""

    fact: str
    """Measure: a name of the table in docs/rewards.md."""
    keep: Literal["at_least", "at_most"] = "at_least"
    """On which side of the limit the mean of the measure must stay."""
    share: float = Field(default=1.0, gt=0)
    """Share of the mean over the completions of step 1, which the base draws."""
    slack: float = Field(default=0.0, ge=0)
    """How far beyond that the limit is, in the measure's unit."""
    scale: float = Field(default=1.0, gt=0)
    """Violation that counts as 1, in the measure's unit."""


class SelfTestConfig(StrictConfig):
    """What a scorer must hear before it is trusted: by the reward server when it starts, by its client before step 1."""

    audio: str = "builtin:tiny-clip"
    """A clip that is known to be good: an audio file, or `builtin:NAME`; empty for no test."""
    text: str = "the little brother was young"
    """The words of the clip; the scorer must hear exactly these."""
    language: str = "en"
    """Language of the text, ISO 639-1."""
    description: str = "somebody speaks"
    """What the clip sounds like, in English words, for measures that compare; its voice is compared with itself."""
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
    max_delay_ms: float = Field(default=20.0, ge=0, le=10_000)
    """Longest time that a completion waits for others to share its request, while later ones are still drawn, milliseconds."""
    concurrency: int = Field(default=16, ge=1, le=1024)
    """Requests under way at once, to all servers together."""


class RecogniserConfig(StrictConfig):
    """A recogniser for one language."""

    name: str
    """Recogniser: a name of the table in docs/rewards.md, or `module:Class`."""
    path: str = ""
    """Its checkpoint folder, where it needs one."""


class RewardConfig(StrictConfig):
    """What makes one completion better than its siblings."""

    type: str = "wer_nll"
    """Reward: a name of the table, or `module:Class`."""
    components: dict[str, ComponentConfig] = Field(default={})
    """With `composite`: its parts, each a section `[reward.components.NAME]`."""
    combine: Literal["harmonic", "sum", "z_score"] = "harmonic"
    """With `composite`: weighted harmonic mean of the utilities, their weighted sum, or, only to replicate the published
    MOSS recipe, that of their deviations from running means; its gate works the wrong way round below the mean."""
    gate_beta: float = Field(default=0.0, ge=0)
    """With `composite`: the reward is multiplied by exp(-gate_beta * WER)."""
    baseline_momentum: float = Field(default=0.9, ge=0, lt=1)
    """With `z_score`: share of the running means and variances that a step leaves as they are."""
    constraints: dict[str, ConstraintConfig] = Field(default={})
    """With `composite`: measures that must not get worse, each a section `[reward.constraints.NAME]`."""
    price_rate: float = Field(default=0.1, gt=0)
    """By how much a constraint's price rises in a step whose mean violates it by its `scale`."""
    max_price: float = Field(default=10.0, gt=0)
    """Largest price of a constraint: what a violation of its `scale` costs, reward units."""
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
    polyphones: bool = False
    """Chinese syllables are right if any listed reading of the character matches (行 as xing or hang), not only the one that
    fits its context."""
    asr: str = "pocketsphinx-bigram"
    """Recogniser behind the WER: a name of the table in docs/rewards.md, or `module:Class`."""
    asr_path: str = ""
    """Checkpoint folder of `asr`, where it needs one; nothing is downloaded."""
    asr_by_language: dict[str, RecogniserConfig] = Field(default={})
    """Recognisers of single languages, each a section `[reward.asr_by_language.zh]`; `asr` hears all others."""
    nll: str = "hama"
    """Recogniser behind the likelihood: a name of the table in docs/rewards.md, or `module:Class`."""
    nll_path: str = ""
    """Checkpoint folder of `nll`, where it needs one; with the same name and folder as `asr`, one pass does both."""
    speaker: str = "resemblyzer"
    """Speaker encoder behind `speaker_similarity`: a name of the table in docs/rewards.md, or `module:Class`."""
    speaker_path: str = ""
    """Checkpoint folder of `speaker`, where it needs one."""
    clap: str = "clap"
    """What `clap_similarity` and `clap_quality` are measured with: `clap`, as transformers runs it, or `module:Class`."""
    clap_path: str = ""
    """Checkpoint folder of the CLAP model behind `clap_similarity` and `clap_quality`."""
    clap_text: str = ""
    """What `clap_similarity` compares a clip with if its prompt has no `description`."""
    clap_quality_text: str = Field(default="High Quality Recording, fluid pleasant performance", min_length=1)
    """What `clap_quality` compares every clip with; the default is MOSS v7's."""
    utmos_path: str = ""
    """Folder of `utmos`, with `utmos_state_dict.pt`."""
    emotion_path: str = ""
    """Folder of the emotion2vec model behind `emotion_probability`, as funasr loads it."""
    expected_rate: dict[str, Annotated[float, Field(gt=0)]] = Field(default={})
    """Letters and digits a second that `duration_ratio` expects of a language, for example `{en = 14.0}`; where the language
    has none, those of the recording of the prompt's voice."""
    require_speech: bool = False
    """No recogniser listens to a clip in which silero-vad hears no speech, and the clip takes the lowest reward."""
    devices: tuple[str, ...] = Field(default=("cpu",), min_length=1, strict=False)
    """Where models that have a path run, for example `["cuda:0", "cuda:1"]`: the scoring processes share them out, each with
    models of its own on one of them. The other models run on the CPU."""
    batch_size: int = Field(default=1, ge=1, le=256)
    """Most clips that a scoring process listens to at once: those that wait while it is busy."""
    workers: int = Field(default=0, ge=0, le=256)
    """Scoring processes; 0 means one for each of `devices`, and on the CPU one for each core."""
    timeout_s: float = Field(default=60.0, gt=0, le=86_400)
    """Longest time that one clip may take to score, seconds."""
    call_timeout_s: float = Field(default=1800.0, gt=0, le=604_800)
    """Longest time that the reward may take to be built, to start, or to score all completions of a step, seconds."""
    max_unscored_share: float = Field(default=0.2, ge=0, le=1)
    """The run stops if more than this share of a step's completions could not be scored."""
    self_test: SelfTestConfig = SelfTestConfig()
    remote: RemoteRewardConfig = RemoteRewardConfig()

    @model_validator(mode="after")
    def _check_devices(self) -> Self:
        if 0 < self.workers < len(self.devices):
            raise ValueError(
                f"reward.workers = {self.workers} leaves some of reward.devices = {list(self.devices)} without a scoring "
                f"process; set at least {len(self.devices)} or 0"
            )
        return self

    @model_validator(mode="after")
    def _check_comparison(self) -> Self:
        if self.normalizer == "seed_tts" and self.metric != "wer":
            raise ValueError(
                f"normalizer = 'seed_tts' counts words, and in Chinese characters, not metric = {self.metric!r}"
            )
        return self

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        given = {
            "reward.components": bool(self.components),
            "reward.gate_beta": bool(self.gate_beta),
            "reward.constraints": bool(self.constraints),
            'reward.combine = "z_score"': self.combine == "z_score",
        }
        if self.type == "wer_nll" and any(given.values()):
            unused = ", ".join(name for name, is_given in given.items() if is_given)
            raise ValueError(
                f'reward.type = "wer_nll" has a combination of its own and takes no {unused}; use reward.type = "composite"'
            )
        if self.combine == "z_score" and not self.components:
            raise ValueError('reward.combine = "z_score" needs the weights of [reward.components.NAME] sections')
        return self

    @property
    def num_workers(self) -> int:
        """Scoring processes to start; 0 is one for each core."""
        return self.workers or (0 if set(self.devices) == {"cpu"} else len(self.devices))

    @property
    def part_names(self) -> tuple[str, ...] | None:
        """The parts of each score, for which `algorithm.part_weights` has weights; None if the config cannot tell."""
        return {"wer_nll": ("wer", "nll"), "composite": tuple(self.components)}.get(self.type)
