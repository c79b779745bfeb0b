"""Rollouts of several channels from the multi-channel fork of SGLang: text and a voice in, rows of ids out.

The rows are what was sampled; the clip in the same answer is never encoded again. The fork gives no log-probs, so the
policy's own stand in for them, and ratios cannot show whether the server has other weights. Nothing here has been run
against the fork: it follows its source (OpenMOSS/sglang 858ffe9).
"""

import base64
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import soundfile
from numpy.typing import NDArray

from elocution.errors import ConfigError, DataError, EngineError
from elocution.policies.base import Policy
from elocution.rollout.agreement import score_completions
from elocution.rollout.base import RolloutRequest, as_stream
from elocution.rollout.canary import check_answers_uncrossed
from elocution.rollout.sglang import check_servers
from elocution.rollout.sglang_answers import check_version, decode_answer_audio, read_finish, read_rows
from elocution.rollout.sglang_client import SglangServers
from elocution.rollout.sglang_protocol import GenerateRequest, GenerateResponse, SamplingParams
from elocution.rollout.sglang_sync import SglangSync
from elocution.types import Audio, Completion

__all__ = ["RowPrompt", "SglangRowEngine", "rewritten_by_server"]

# Rows that the policy scores at once.
_SCORED_TOGETHER = 16

# What the fork's text normaliser deletes or puts in another's place.
_REWRITTEN = re.compile(r"""[\"_~\-;:\n“”‘’【】《》「」『』（）〈〉]|\[\d+\]|哈{2,}|\bha ?ha\b|,\s*$""", re.IGNORECASE)


@dataclass(frozen=True)
class RowPrompt:
    """What the fork builds a prompt from. `frames` is the length to aim at, codec frames; None leaves it open."""

    text: str
    instruction: str | None = None
    frames: int | None = None
    voice: Audio | None = None

    def tagged_text(self) -> str:
        """The text with its tags in front, in the one order that the fork reads.

        Raises: DataError if a value would end its tag, or the server would speak another text than this.
        """
        if self.instruction is not None and "}" in self.instruction:
            raise DataError(f"the instruction {self.instruction!r} holds a brace, which ends its tag; leave it out")
        if (reason := rewritten_by_server(self.text)) is not None:
            raise DataError(f"{reason}: {self.text!r}; normalise the text before")
        tags = [("token", self.frames), ("instruction", self.instruction)]
        return "".join(f"${{{name}:{value}}}" for name, value in tags if value is not None) + self.text

    def audio_data(self) -> tuple[str, ...] | None:
        """The voice as a data URI, for a path would have the server open any file that it is named."""
        if self.voice is None:
            return None
        buffer = io.BytesIO()
        soundfile.write(buffer, self.voice.samples, self.voice.sample_rate, format="WAV", subtype="FLOAT")
        return ("data:audio/wav;base64," + base64.b64encode(buffer.getvalue()).decode("ascii"),)


def rewritten_by_server(text: str) -> str | None:
    """Why the fork would build its prompt from another text than `text`, or None."""
    if text.startswith("${"):
        return "the server would take the start of the text for a tag"
    found = _REWRITTEN.search(text)
    return None if found is None else f"the server would delete or replace {found.group()!r} in the text"


class SglangRowEngine:
    """Samples rows at `temperature`, the same for all channels, as the fork has one temperature alone."""

    def __init__(
        self,
        policy: Policy,
        servers: SglangServers,
        sync: SglangSync,
        *,
        temperature: float,
        render: Callable[[RolloutRequest], RowPrompt],
        channel_sizes: Sequence[int],
        probes: Sequence[RolloutRequest],
    ) -> None:
        """`sync` publishes the fused checkpoint to `servers`; `render` must describe just the request's prompt ids.

        `channel_sizes` [C] are the numbers of ids of each channel; the last id of every channel but the first is its
        padding.

        Raises: ConfigError if the sizes do not fit the policy, `sync` publishes adapters, which the fork cannot take,
        or the probes are fewer than two prompts.
        """
        if len(channel_sizes) != policy.num_channels or policy.num_channels < 2:
            raise ConfigError(
                f"{len(channel_sizes)} channel sizes do not fit a policy of {policy.num_channels} channels"
            )
        if sync.kind != "weights":
            raise ConfigError("the multi-channel fork of SGLang takes whole weights only, not adapters")
        if len({probe.prompt_ids.tobytes() for probe in probes}) < max(2, len(probes)):
            raise ConfigError("an SGLang engine needs at least two probes, each with a prompt of its own")
        self.temperature = temperature
        self._policy, self._render = policy, render
        self._sizes = tuple(channel_sizes)
        self._servers, self._sync = servers, sync
        self._probes = [RolloutRequest(probe.prompt_ids, probe.seeds[:1], probe.max_new) for probe in probes]
        self._version: int | None = None
        self._has_proof = False
        self._no_audio = self._text_only = 0

    def metrics(self) -> dict[str, float]:
        """Counts since the start. `no_audio` are answers without a clip, `text_only` those without any code."""
        return {
            **self._servers.counts.metrics(),
            "engine/no_audio": self._no_audio,
            "engine/text_only": self._text_only,
        }

    def publish(self, version: int) -> None:
        """Raises: EngineError if a server fails, or at the first time if answers are crossed."""
        if not self._has_proof:
            check_servers(self._servers)
        self._version = None
        self._sync.publish(version)
        self._version = version
        if not self._has_proof:
            try:
                answers = [group[0].ids for group in self.generate(self._probes)]
                prompts = [probe.prompt_ids for probe in self._probes]
                check_answers_uncrossed(self._policy, prompts, answers, temperature=self.temperature)
            except EngineError:
                self._version = None
                raise
            self._has_proof = True

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        return as_stream(self.generate(requests))

    def generate(self, requests: Sequence[RolloutRequest]) -> list[list[Completion]]:
        """The completions of each request, in the order of its seeds; seeds have no effect: the fork's draws cannot be repeated.

        Raises: DataError if a text cannot be asked for.
        """
        if self._version is None:
            raise EngineError("no weights have been published to the SGLang servers")
        owners = [request for request in requests for _ in request.seeds]
        answers = self._servers.generate([self._request(request) for request in owners])
        rows = [self._read(request, answer) for request, answer in zip(owners, answers, strict=True)]
        logprobs: list[NDArray[np.float32]] = []
        for start in range(0, len(rows), _SCORED_TOGETHER):
            part = slice(start, start + _SCORED_TOGETHER)
            prompts = [request.prompt_ids for request in owners[part]]
            logprobs += score_completions(self._policy, prompts, rows[part], temperature=self.temperature)
        completions = iter(
            Completion(ids, logprob, read_finish(answer, request.max_new - len(self._sizes)), self._version)
            for ids, logprob, answer, request in zip(rows, logprobs, answers, owners, strict=True)
        )
        return [[next(completions) for _ in request.seeds] for request in requests]

    def _request(self, request: RolloutRequest) -> GenerateRequest:
        # The server adds a row for each channel to the budget, to end a clip in.
        budget = request.max_new - len(self._sizes)
        if budget < 1:
            raise EngineError(
                f"a budget of {request.max_new} rows is too small: {len(self._sizes)} of them end a clip; raise "
                "rollout.min_codes"
            )
        prompt = self._render(request)
        return GenerateRequest(
            rid="elocution",
            text=prompt.tagged_text(),
            audio_data=prompt.audio_data(),
            sampling_params=SamplingParams(max_new_tokens=budget, temperature=self.temperature),
        )

    def _read(self, request: RolloutRequest, answer: GenerateResponse) -> NDArray[np.int64]:
        assert self._version is not None
        check_version(answer, self._version)
        rows = read_rows(answer, self._sizes, request.max_new)
        has_codes = bool((rows[:, 1:] != np.array(self._sizes[1:]) - 1).any())
        has_audio = decode_answer_audio(answer.text) is not None
        if has_audio and not has_codes:
            raise EngineError("SGLang sent a clip with rows that hold no code: answers are crossed")
        self._no_audio += not has_audio
        self._text_only += not has_codes
        return rows
