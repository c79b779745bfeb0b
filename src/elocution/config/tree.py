"""The configuration tree of a run: every field with its unit, its range and a default that is a tested recipe.

Frozen; unknown keys are errors. Imports no torch.
"""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from elocution.config.evaluation import EvalConfig, LogConfig
from elocution.config.rewards import (
    ComponentConfig,
    ConstraintConfig,
    RecogniserConfig,
    RemoteRewardConfig,
    RewardConfig,
    SelfTestConfig,
)
from elocution.config.strict import StrictConfig
from elocution.config.training import ParameterRule, TrainConfig

__all__ = [
    "AlgorithmConfig",
    "CodecConfig",
    "ComponentConfig",
    "ConstraintConfig",
    "DataConfig",
    "EvalConfig",
    "LogConfig",
    "LoraSettings",
    "ModelConfig",
    "MossSettings",
    "ParameterRule",
    "RecogniserConfig",
    "RemoteRewardConfig",
    "RewardConfig",
    "RewardServerConfig",
    "RolloutConfig",
    "RunConfig",
    "SelfTestConfig",
    "ServerConfig",
    "SglangConfig",
    "StrictConfig",
    "SyncSettings",
    "TrainConfig",
    "VerlConfig",
]


class LoraSettings(StrictConfig):
    """Low-rank adapters: small matrices A and B beside frozen weights W, which act as W + (alpha / rank) B A."""

    rank: int = Field(default=0, ge=0, le=1024)
    """Rows of A and columns of B; 0 trains the weights themselves, without an adapter."""
    alpha: float = Field(default=32.0, gt=0)
    """Scale of the adapter, divided by its rank."""
    dropout: float = 0.0
    """Must be 0: with activations dropped, the learner would score another policy than the one that was sampled."""
    target_modules: tuple[str, ...] = Field(default=(), strict=False)
    """Shell-style patterns of the layers that get an adapter, by whole name or last part, for example `q_proj`; empty
    means every attention and MLP matrix of the family."""

    @field_validator("dropout")
    @classmethod
    def _refuse_dropout(cls, value: float) -> float:
        if value:
            raise ValueError("must be 0, or sampling and training probabilities would differ")
        return value


class MossSettings(StrictConfig):
    """What only the family `moss` has."""

    voice_form: Literal["turn", "reference"] = "turn"
    """Where a recording goes that gives the voice: an earlier turn of the model itself, or the `Reference(s)` field of the
    user's turn, as the SGLang fork builds it."""
    drop_last_frame: bool = True
    """Leave the last frame of a clip (80 ms), which no model was taught, out of the sound and of the loss."""


class ModelConfig(StrictConfig):
    """The policy to be trained."""

    family: str = "llasa"
    """Model family: a name of the table, or `module:Class`."""
    path: str = "builtin:tiny-llasa"
    """Checkpoint folder in the family's released layout, or `builtin:NAME`."""
    speaker: str = ""
    """Whose voice every prompt asks for, where a checkpoint was taught some: a name (llasa, orpheus) or global codes (spark)."""
    language_tags: dict[str, str] = Field(default={})
    """With `llasa`: tags that wrap the text, by language: `yue = "YUE"` for `<|YUE_START|>…<|YUE_END|>`."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of matrix products, in sampling and learning alike; weights and log-softmax are fp32 always."""
    lora: LoraSettings = LoraSettings()
    moss: MossSettings = MossSettings()


class CodecConfig(StrictConfig):
    """What turns codes into sound."""

    type: str = "tiny"
    """Codec: tiny, xcodec2, neucodec, snac, or `module:Class`."""
    path: str = "builtin:tiny-codec"
    """Codec folder, or `builtin:NAME`."""


class DataConfig(StrictConfig):
    """Prompt files: JSON lines or parquet with `text`, and optionally `id`, `language` and a voice; see docs/prompts.md."""

    train: str = "builtin:tiny-train"
    """Prompts to train on: a JSONL or parquet file, a folder of parquet, or `builtin:NAME`."""
    held_out: str = "builtin:tiny-held-out"
    """Prompts to evaluate on; must share no text with the training prompts."""
    languages: tuple[str, ...] = Field(default=("en",), min_length=1, strict=False)
    """Languages that rows may have, ISO 639-1."""
    on_bad_row: Literal["stop", "skip"] = "stop"
    """What a bad row does: `stop` the run before it starts, or `skip` the row, counted and listed."""
    voice_cache: str = ""
    """Folder that keeps the codes of recorded voices, so that no later run encodes them again; empty is
    `elocution/voices` in the user's cache folder ($XDG_CACHE_HOME, else ~/.cache)."""


class ServerConfig(StrictConfig):
    """Where the servers of another engine are; docs/engines.md has the commands. Has no effect with `torch`."""

    urls: tuple[str, ...] = Field(default=(), strict=False)
    """Servers that run already, for example `http://10.0.0.2:8000`; empty starts one for each entry of `devices`."""
    python: str = ""
    """Python of the environment that the engine is installed in; empty is the one that runs elocution."""
    devices: tuple[str, ...] = Field(default=("",), min_length=1, strict=False)
    """One server is started for each entry, with CUDA_VISIBLE_DEVICES set to it; an empty entry leaves that as it is."""
    port: int = Field(default=0, ge=0, le=65535)
    """Port of the first server that is started, the others take those that follow; 0 takes free ones."""
    flags: tuple[str, ...] = Field(default=(), strict=False)
    """Further arguments of a server that is started, for example `--max-model-len=2048`."""
    env: dict[str, str] = Field(default={})
    """Further environment variables of a server that is started."""
    start_timeout_s: float = Field(default=600.0, gt=0, le=86_400)
    """Longest time that a server may take to start, seconds."""
    request_timeout_s: float = Field(default=600.0, gt=0, le=86_400)
    """Longest time that a server may take for one answer, seconds."""
    retries: int = Field(default=3, ge=0, le=100)
    """Times that a question is asked again after a failure; then the run stops."""
    max_restarts: int = Field(default=3, ge=0, le=100)
    """Times that a server that was started and died is started again; then the run goes on without it, or stops."""
    max_in_flight: int = Field(default=256, ge=1, le=4096)
    """Requests that one server may have at once; a request is one completion."""
    weights_dir: str = ""
    """Folder through which weights reach the servers, which must see it under the same path; empty is `sync` in the run."""
    sleep: bool = False
    """Let servers give their GPU memory back while the learner works, for servers on the learner's own GPU."""


class SglangConfig(StrictConfig):
    """How SGLang servers are used; docs/sglang.md has what is behind it. Has no effect with other engines."""

    launch: Literal["sglang", "elocution"] = "sglang"
    """What is started where `rollout.server.urls` is empty: SGLang, or our own `elocution serve tts`."""
    legal: Literal["mask", "redraw"] = "mask"
    """How draws keep to the legal ids: the server masks all others, or completions with an illegal id are drawn again."""
    max_redraws: int = Field(default=5, ge=0, le=1000)
    """With `redraw`: times that a completion is drawn again; then the run stops."""
    max_mean_gap: float = Field(default=0.05, gt=0, le=10)
    """Largest difference between two servers' log-probs of the same ids, nats."""
    token_env: str = ""
    """Environment variable that holds the key which servers ask for; empty for none."""


class SyncSettings(StrictConfig):
    """How new weights reach an engine that has a copy of its own, and when it is believed to have them.

    For `vllm` and `sglang`; `torch` samples from the learner's own weights and needs none of it.
    """

    strategy: Literal["full", "delta", "adapter", "collective"] = "full"
    """What is written: every tensor; what an adapter changes, merged; the adapter; or nothing, for tensors are sent."""
    dtype: Literal["fp32", "bf16", "base"] = "fp32"
    """Type of the weights that are written: rounded once from fp32; `base` keeps each tensor's type in the base."""
    max_logprob_difference: float = Field(default=0.0, ge=0)
    """Largest difference between the engine's and the learner's log-probs of a probe's id, nats; a tenth of it for the
    mean. 0 means 1e-3 where all is fp32, else 0.5."""
    probes: int = Field(default=8, ge=1, le=256)
    """Sequences that are compared after every sync."""
    probe_codes: int = Field(default=64, ge=2, le=4096)
    """Longest completion of a probe, codes."""
    max_retries: int = Field(default=2, ge=0, le=100)
    """Times that a version is loaded again if it is not proven; then the run stops."""


class RolloutConfig(StrictConfig):
    """How completions are drawn."""

    engine: Literal["torch", "vllm", "sglang"] = "torch"
    """What draws them: `torch` in this process, `vllm` servers, for policies of one codebook, or `sglang` servers."""

    group_size: int = Field(default=8, ge=2, le=1024)
    """Completions of one prompt, which are compared with each other."""
    temperature: float = Field(default=1.0, gt=0, le=10)
    """Softmax temperature, in sampling and in the learner's log-probs alike."""
    temperature_end: float = Field(default=1.0, gt=0, le=10)
    """`temperature` of the last step, unless `temperature_schedule` is constant."""
    temperature_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the temperature goes from `temperature` to `temperature_end` over the run."""
    max_codes_per_char: float = Field(default=4.0, gt=0, le=1000)
    """Token budget of a completion for each character of its text, codes."""
    min_codes: int = Field(default=40, ge=1, le=100_000)
    """Smallest token budget, codes."""
    batch_size: int = Field(default=128, ge=1)
    """Most completions drawn at once; one that ends makes room for one that waits. Servers batch by themselves."""
    compile: bool = True
    """With `torch` on a CPU in fp32: attention and norms compiled for it by the system's C compiler; without one as if false."""
    server: ServerConfig = ServerConfig()
    sglang: SglangConfig = SglangConfig()
    sync: SyncSettings = SyncSettings()


class AlgorithmConfig(StrictConfig):
    """The policy-gradient objective."""

    advantage: Literal["grpo", "dr_grpo", "rloo", "reinforce_pp", "gdpo"] = "grpo"
    """How completions are compared; formulas and sources are in docs/algorithms.md."""
    part_weights: dict[str, float] = Field(default={})
    """With `gdpo`: weights of the reward's parts, each normalised by itself; `wer` and `nll` for the reward `wer_nll`."""
    std_floor: float = Field(default=0.01, gt=0)
    """Smallest standard deviation by which advantages are divided, reward units."""
    loss: Literal["clipped", "gspo", "cispo", "sapo", "weighted_ce"] = "clipped"
    """The objective of a cell; formulas and sources are in docs/algorithms.md."""
    clip_low: float = Field(default=0.2, gt=0, le=1)
    """A ratio below 1 - clip_low gets no gradient that would lower it further."""
    clip_high: float = Field(default=0.28, gt=0)
    """A ratio above 1 + clip_high gets no gradient that would raise it further."""
    dual_clip: float = Field(default=0.0, ge=0)
    """Ratios above it get no gradient where the advantage is negative; 0 leaves them free, else it must exceed 1."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the clip bounds go from their values to `clip_low_end` and `clip_high_end` over the run."""
    clip_low_end: float = Field(default=0.2, gt=0, le=1)
    """`clip_low` of the last step, unless the schedule is constant."""
    clip_high_end: float = Field(default=0.28, gt=0)
    """`clip_high` of the last step, unless the schedule is constant."""
    tau_positive: float = Field(default=1.0, gt=0)
    """SAPO's temperature where the advantage is positive."""
    tau_negative: float = Field(default=1.05, gt=0)
    """SAPO's temperature where the advantage is negative."""
    aggregation: Literal["token", "sequence", "fixed"] = "token"
    """What cells are averaged over: all of the step, each completion first, or a fixed length."""
    fixed_length: int = Field(default=0, ge=0, le=1_000_000_000)
    """With `fixed`: the length that stands for every completion's, positions."""
    channel_weights: str = ""
    """Weights of the channels' averages: "1,32" gives text 1 and shares 32 among the codebooks; empty counts cells alike."""
    whole_stops: bool = False
    """Average the decision to stop over completions and not over cells, so that length does not dilute it."""
    kl_coef: float = Field(default=0.0, ge=0)
    """Weight of the estimate of KL(policy || base model) in the loss; k3 is logged at 0 too."""
    kl_estimate: Literal["k1", "k2", "k3", "exact"] = "k3"
    """Which estimate enters the loss; `exact` is no estimate but the sum over all legal ids, and is logged too."""
    entropy_coef: float = Field(default=0.0, ge=0)
    """Weight of the entropy, which is raised."""
    correction: Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = "none"
    """Importance weights for log-probs of the engine that are not the learner's; with them ratios start from the learner's."""
    correction_low: float = Field(default=0.0, ge=0)
    """Smallest importance ratio that counts, with the `mask` corrections."""
    correction_high: float = Field(default=2.0, gt=0)
    """Largest importance ratio: a bound, or with the `mask` corrections the last that counts."""
    truncated: Literal["floor", "keep", "mask"] = "floor"
    """Completions that use up their budget: lowest reward, scored as they are, or lowest reward and no part in the loss."""
    max_resamples: int = Field(default=0, ge=0, le=10)
    """Times that groups without spread are replaced by groups of other prompts in a step; 0 leaves them out only."""
    epochs: int = Field(default=1, ge=1, le=100)
    """Passes over the completions of a step."""


class RewardServerConfig(StrictConfig):
    """The reward server, `elocution serve rewards`; training does not read this."""

    host: str = "127.0.0.1"
    """Address to listen on; beyond loopback, set a token."""
    port: int = Field(default=8000, ge=0, le=65_535)
    """TCP port; 0 takes a free one."""
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    """TCP port of the Prometheus metrics; 0 serves them at `/metrics` of the main port."""
    model_name: str = Field(default="token2wav_asr", pattern=r"^[A-Za-z0-9_.-]+$")
    """Name of the model that takes codes; the one that takes waveforms has `_wav` behind it."""
    token_env: str = ""
    """Environment variable that holds the bearer token which clients must send; empty for none."""
    max_batch_size: int = Field(default=32, ge=1, le=1024)
    """Most clips in one request, and most clips of several requests that are scored together."""
    max_delay_ms: float = Field(default=10.0, ge=0, le=10_000)
    """Longest time that a clip waits for others to be scored with, milliseconds."""
    concurrent_batches: int = Field(default=4, ge=1, le=64)
    """Batches given to the reward at once; 1 for a reward of your own that threads must not share."""
    max_waiting: int = Field(default=4096, ge=1)
    """Clips that may wait; more are refused as busy."""
    cache_entries: int = Field(default=65_536, ge=0)
    """Scores remembered by codes or samples, text and language; 0 remembers none."""
    max_clip_s: float = Field(default=120.0, gt=0, le=3600)
    """Longest clip, seconds, as waveform or as codes."""
    max_text_chars: int = Field(default=2000, ge=1, le=100_000)
    """Longest text, characters."""
    max_body_mib: float = Field(default=64.0, gt=0, le=2048)
    """Largest request body, MiB, before and after decompression."""
    drain_s: float = Field(default=60.0, gt=0, le=3600)
    """Longest time that requests under way may take after SIGTERM, seconds."""


class VerlConfig(StrictConfig):
    """What only veRL needs to know, `elocution verl`; docs/verl.md says which other keys it reads."""

    python: str = ""
    """Python of the environment that veRL is installed in; empty is the one that runs elocution."""
    nodes: int = Field(default=1, ge=1, le=10_000)
    """Machines of the Ray cluster that take part."""
    gpus_per_node: int = Field(default=8, ge=1, le=64)
    """GPUs of each of them."""
    strategy: Literal["fsdp", "fsdp2"] = "fsdp2"
    """How weights and optimiser state lie in shards over the GPUs: torch's first or second FSDP."""
    micro_batch_per_gpu: int = Field(default=4, ge=1, le=4096)
    """Completions that a GPU computes at once in an update."""
    tensor_parallel: int = Field(default=1, ge=1, le=64)
    """GPUs that share one copy of the sampling weights."""
    gpu_memory_share: float = Field(default=0.6, gt=0, lt=1)
    """Share of a GPU's memory that vLLM takes."""
    top_k: int = Field(default=0, ge=0)
    """Draw from the likeliest ids only; 0 from all. veRL knows no legal ids, and its log-probs know no truncation."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Draw from the likeliest ids of this mass only."""
    max_prompt_tokens: int = Field(default=1024, ge=1)
    """Longest prompt, tokens; a longer one stops the run."""
    overrides: tuple[str, ...] = Field(default=(), strict=False)
    """Further overrides in veRL's own words, for example `trainer.logger=[console,wandb]`; they win."""


class RunConfig(StrictConfig):
    """A whole run."""

    seed: int = Field(default=0, ge=0, lt=2**31)
    """Every random draw of the run follows from it."""
    model: ModelConfig = ModelConfig()
    codec: CodecConfig = CodecConfig()
    data: DataConfig = DataConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    log: LogConfig = LogConfig()
    reward_server: RewardServerConfig = RewardServerConfig()
    verl: VerlConfig = VerlConfig()

    @model_validator(mode="after")
    def _check_across_fields(self) -> Self:
        judge = (self.eval.judge, self.eval.judge_path)
        rewarding = {"reward.asr": (self.reward.asr, self.reward.asr_path)} | {
            f"reward.asr_by_language.{language}": (one.name, one.path)
            for language, one in self.reward.asr_by_language.items()
        }
        for key, recogniser in rewarding.items():
            if recogniser == judge:
                raise ValueError(
                    f"eval.judge and {key} are both {judge[0]!r}; "
                    "the judge must be another recogniser, or reward hacking would not show"
                )
        facts = {one.fact for one in self.reward.components.values()}
        facts |= {one.fact for one in self.reward.constraints.values()}
        encoder = (self.eval.speaker, self.eval.speaker_path)
        if (
            self.eval.every
            and "speaker_similarity" in facts
            and encoder == (self.reward.speaker, self.reward.speaker_path)
        ):
            raise ValueError(
                f"eval.speaker and reward.speaker are both {encoder[0]!r}; a guard must compare voices by another encoder, "
                "or reward hacking would not show"
            )
        if self.reward.type == "remote" and not self.reward.remote.urls:
            raise ValueError('reward.type = "remote" needs reward.remote.urls, for example ["http://127.0.0.1:8000"]')
        if self.train.minibatches > self.train.prompts_per_step:
            raise ValueError(
                f"train.minibatches = {self.train.minibatches} cannot exceed "
                f"train.prompts_per_step = {self.train.prompts_per_step}: a minibatch needs a whole group"
            )
        if self.train.lr_min > (0 if self.train.lr_schedule == "constant" else self.train.learning_rate):
            raise ValueError(
                f"train.lr_min = {self.train.lr_min} must not exceed train.learning_rate = {self.train.learning_rate}, and "
                'needs train.lr_schedule = "linear" or "cosine": a constant rate does not fall'
            )
        if self.train.sync_every - 1 > self.train.max_lag:
            raise ValueError(
                f"train.sync_every = {self.train.sync_every} draws from weights that are up to "
                f"{self.train.sync_every - 1} steps old, but train.max_lag = {self.train.max_lag}; raise max_lag to "
                f"{self.train.sync_every - 1}, or to {self.train.sync_every} to overlap one batch with the learner as well"
            )
        if self.train.max_lag and self.algorithm.correction == "none":
            raise ValueError(
                f"train.max_lag = {self.train.max_lag} trains on completions of older weights, which without importance "
                'weights count as if the policy had drawn them; set algorithm.correction = "token_truncate", or another'
            )
        if not all(0 <= beta < 1 for beta in self.train.betas):
            raise ValueError(f"train.betas = {list(self.train.betas)} must each lie in [0, 1)")
        if 0 < self.algorithm.dual_clip <= 1 + self.algorithm.clip_high:
            raise ValueError(
                f"algorithm.dual_clip = {self.algorithm.dual_clip} must exceed 1 + clip_high = "
                f"{1 + self.algorithm.clip_high}, or be 0"
            )
        if (self.algorithm.aggregation == "fixed") != bool(self.algorithm.fixed_length):
            raise ValueError(
                f"algorithm.aggregation = {self.algorithm.aggregation!r} with algorithm.fixed_length = "
                f'{self.algorithm.fixed_length}: "fixed" needs a length, and nothing else takes one'
            )
        if self.algorithm.correction_low >= self.algorithm.correction_high:
            raise ValueError(
                f"algorithm.correction_low = {self.algorithm.correction_low} must be below "
                f"algorithm.correction_high = {self.algorithm.correction_high}"
            )
        if (self.algorithm.advantage == "gdpo") != bool(self.algorithm.part_weights):
            raise ValueError(
                f"algorithm.advantage = {self.algorithm.advantage!r} with algorithm.part_weights = "
                f"{self.algorithm.part_weights}: gdpo needs weights, and nothing else takes them"
            )
        self._check_parts()
        if self.rollout.sync.strategy in ("delta", "adapter") and not self.model.lora.rank:
            raise ValueError(
                f"rollout.sync.strategy = {self.rollout.sync.strategy!r} needs an adapter (model.lora.rank > 0); "
                'without one every weight changes: use "full"'
            )
        given = self.rollout.engine, self.rollout.sync.dtype
        if self.rollout.sync.strategy == "collective" and (given[0] != "sglang" or given[1] == "base"):
            raise ValueError(
                "rollout.sync.strategy = 'collective' needs rollout.engine = 'sglang' and rollout.sync.dtype fp32 or bf16, "
                f"got {given[0]!r} and {given[1]!r}"
            )
        if self.eval.on_collapse == "roll_back" and (
            not self.eval.every or self.train.max_lag or self.train.parallel == "fsdp"
        ):
            raise ValueError(
                'eval.on_collapse = "roll_back" needs eval.every above 0, train.max_lag = 0 and train.parallel = "ddp", got '
                f"{self.eval.every}, {self.train.max_lag} and {self.train.parallel!r}"
            )
        if self.eval.probe_sentences > self.eval.sentences:
            raise ValueError(
                f"eval.probe_sentences = {self.eval.probe_sentences} cannot exceed "
                f"eval.sentences = {self.eval.sentences}"
            )
        return self

    def _check_parts(self) -> None:
        """GDPO compares the parts of scores, not their values."""
        if self.algorithm.advantage != "gdpo":
            return
        reward, weights, parts = self.reward, self.algorithm.part_weights, self.reward.part_names
        if parts is not None and set(weights) != set(parts):
            raise ValueError(
                f"algorithm.part_weights has weights for {', '.join(sorted(weights))}, but the parts of the reward "
                f"{reward.type!r} are {', '.join(sorted(parts))}; give each part its weight"
            )
        ignored = {
            "reward.gate_beta": bool(reward.gate_beta),
            'reward.combine = "z_score"': reward.combine == "z_score",
            "reward.constraints": bool(reward.constraints),
        }
        if any(ignored.values()):
            raise ValueError(
                f'algorithm.advantage = "gdpo" compares the parts by themselves and would ignore '
                f"{', '.join(name for name, is_given in ignored.items() if is_given)}; make what matters a part"
            )
        if parts and reward.type == "composite" and reward.on_missing == "renormalize":
            raise ValueError(
                'algorithm.advantage = "gdpo" needs every part of every score; set reward.on_missing = "drop"'
            )
