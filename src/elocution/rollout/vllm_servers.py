"""vLLM servers that hold one policy's weights: checked when they start, loaded, paused, put to sleep, asked.

Endpoints and their meaning are those of vllm 0.32.0 in development mode; see docs/engines.md.
"""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from elocution.errors import CheckpointError, EngineError
from elocution.rollout.json_client import JsonClient
from elocution.rollout.launch import Server
from elocution.rollout.replicas import Job, Replicas
from elocution.rollout.tied_head import lacks_head

__all__ = ["COUNTED", "Question", "VllmServers"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
COUNTED = ("retries", "late", "reloads", "stale", "illegal_ids")
"""What is counted: questions asked again, of them for a late answer, weights loaded again into a server that had lost
them, answers thrown away because of that, ids outside the legal set."""
_LOGPROBS_MODE = "processed_logprobs"
_COMPLETIONS = "/v1/completions"


@dataclass(frozen=True)
class Question(Generic[Result]):
    """A completion request, and what makes a result of its answer."""

    body: Mapping[str, Any]
    parse: Callable[[Any], Result]

    def ask(self, client: JsonClient) -> Result:
        """The result of asking one server."""
        return self.parse(client.post(_COMPLETIONS, self.body))


@dataclass(frozen=True)
class _Weights:
    """What every server shall hold. `token` tells it from any other weights, of this run or another."""

    token: str
    directory: Path
    is_adapter: bool


class VllmServers:
    """One or more servers of the same model, used by any number of engines.

    Whoever holds `lock` keeps other threads from loading weights. `version` is that of the weights, None without any.
    `counts` has what `COUNTED` names.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        vocab_size: int,
        timeout_s: float = 600.0,
        retries: int = 3,
        max_in_flight: int = 64,
        backoff_s: float = 0.5,
    ) -> None:
        """`vocab_size` is the number of output rows that the policy's model has."""
        self._replicas = Replicas(
            servers,
            self._restore,
            timeout_s=timeout_s,
            retries=retries,
            max_in_flight=max_in_flight,
            backoff_s=backoff_s,
        )
        self._vocab_size = vocab_size
        self._run = uuid.uuid4().hex[:12]
        self._wanted: _Weights | None = None
        self._base_model, self.max_length = "", 0
        self._is_asleep = False
        self._proof: tuple[str, Callable[[JsonClient], None]] | None = None  # of the weights with that token
        self.lock = threading.RLock()
        self.version: int | None = None
        self.counts = self._replicas.counts

    def start(self) -> None:
        """Returns once every server answers and serves a model that may be the policy's.

        Raises: EngineUnavailable if a server does not answer; EngineError if it is no vLLM server in development mode,
        reports log-probs of another distribution than the one it samples, or has another vocabulary.
        """
        self._replicas.start()
        try:
            found = self._replicas.each(self._check)
        except BaseException:
            self.stop()
            raise
        self._base_model = found[0][0]
        self.max_length = min(length for _, length in found)

    def restart(self) -> None:
        """Starts the servers that are ours anew, for weights that they do not take; the others are left as they are.

        Raises: EngineUnavailable.
        """
        self._is_asleep = False
        self._replicas.restart()

    def stop(self) -> None:
        """Ends the servers that are ours; may be called twice."""
        self._replicas.stop()

    @property
    def model(self) -> str:
        """What a request must name as its model to be answered with the wanted weights."""
        return self._wanted.token if self._wanted and self._wanted.is_adapter else self._base_model

    @property
    def token(self) -> str:
        """A name of the wanted weights that no others have."""
        if self._wanted is None:
            raise EngineError("no weights have been published to the engine")
        return self._wanted.token

    def load_weights(self, directory: Path, version: int) -> None:
        """Every server draws with the checkpoint in `directory` after this; a server that restarts loads it again.

        The folder must stay until other weights are loaded, and be seen by the servers under the same path.

        Raises: CheckpointError if the folder is no checkpoint that can be loaded whole; EngineError if a server
        refuses it; EngineUnavailable if no server is left.
        """
        if lacks_head(directory):
            raise CheckpointError(
                f"{directory} has tied embeddings and no lm_head.weight: vLLM would keep the output matrix that it has. "
                "Write both, as a sync with `untie` does"
            )
        self._load(directory, version, is_adapter=False)

    def load_adapter(self, directory: Path, version: int) -> None:
        """As `load_weights`, for an adapter in peft's layout on top of the weights that the servers were started with."""
        missing = [
            name for name in ("adapter_config.json", "adapter_model.safetensors") if not (directory / name).is_file()
        ]
        if missing:
            raise CheckpointError(f"{directory} holds no adapter: {', '.join(missing)} is missing")
        self._load(directory, version, is_adapter=True)

    def ask(self, questions: Sequence[Question[Result]]) -> Iterator[tuple[int, Result]]:
        """The number of each question and its answer by any one of the servers, as soon as it is there.

        All are drawn with the wanted weights. Raises: as `Replicas.run`, and what the questions' parsers raise.
        """
        self.wake()
        yield from self._replicas.run([Job(question.ask) for question in questions])

    def ask_each(
        self, questions: Sequence[Question[Result]], check: Callable[[list[Result], list[Result]], None]
    ) -> list[Result]:
        """The answers to all questions by every server that is up; those of one, which `check` has compared with the others'.

        They stand for the weights from then on: a server that has to load these again is asked the same, and compared.

        Raises: EngineError, EngineUnavailable; what `check` raises.
        """
        self.wake()
        self._replicas.restore()
        first, *others = self._replicas.each(lambda client: [question.ask(client) for question in questions])
        for other in others:
            check(first, other)
        self._proof = self.token, lambda client: check(first, [question.ask(client) for question in questions])
        return first

    def sleep(self) -> None:
        """Frees the servers' GPU memory until something is asked of them; does nothing on a CPU."""
        self._replicas.each(lambda client: client.post("/sleep", parameters={"level": "1", "mode": "wait"}))
        self._is_asleep = True

    def wake(self) -> None:
        """Takes the GPU memory back, if the servers are asleep."""
        if self._is_asleep:
            self._replicas.each(lambda client: client.post("/wake_up"))
            self._is_asleep = False

    def _load(self, directory: Path, version: int, *, is_adapter: bool) -> None:
        with self.lock:
            self.wake()
            self.version = None
            self._wanted = _Weights(f"{self._run}-{uuid.uuid4().hex[:6]}-v{version}", directory.absolute(), is_adapter)
            self._replicas.restore()
            self.version = version

    def _restore(self, client: JsonClient) -> bool:
        """Makes a server hold the wanted weights; whether it had to load them."""
        found = client.get("/weight_info")
        wanted = self._wanted
        if wanted is None or (isinstance(found, dict) and found.get("weight_version") == wanted.token):
            return False
        if wanted.is_adapter:
            self._restore_adapter(client, wanted)
        else:
            client.post("/pause", parameters={"mode": "wait"})
            try:
                client.post(
                    "/collective_rpc",
                    {"method": "reload_weights", "kwargs": {"weights_path": str(wanted.directory)}},
                )
                if client.post("/reset_prefix_cache") != {"success": True}:
                    raise EngineError(f"{client.url} did not reset its prefix cache: old weights would still be in it")
            finally:
                client.post("/resume")
        if self._proof and self._proof[0] == wanted.token:
            self._proof[1](client)
        client.post("/update_weight_version", {"new_version": wanted.token})
        logger.info("%s holds the weights %s", client.url, wanted.token)
        return True

    def _restore_adapter(self, client: JsonClient, wanted: _Weights) -> None:
        loaded = {model["id"] for model in client.get("/v1/models")["data"]}
        if wanted.token not in loaded:
            client.post("/v1/load_lora_adapter", {"lora_name": wanted.token, "lora_path": str(wanted.directory)})
        for name in loaded:
            if name.startswith(self._run) and name != wanted.token:
                client.post("/v1/unload_lora_adapter", {"lora_name": name})

    def _check(self, client: JsonClient) -> tuple[str, int]:
        """The name of the server's base model, and how many ids a prompt and its completion may have together."""
        try:
            models = [model for model in client.get("/v1/models")["data"] if model.get("parent") is None]
            name, max_length = str(models[0]["id"]), int(models[0]["max_model_len"])
            settings = client.get("/server_info", {"config_format": "json"})["vllm_config"]["model_config"]
            mode = settings["logprobs_mode"]
            client.get("/weight_info")
            # A run that was killed may have left the server so; it would answer nothing.
            if client.get("/is_sleeping")["is_sleeping"]:
                client.post("/wake_up")
            if client.get("/is_paused")["is_paused"]:
                client.post("/resume")
        except (EngineError, LookupError, TypeError, AttributeError) as error:
            raise EngineError(
                f"{client.url} does not answer as a vLLM server in development mode does "
                f"({type(error).__name__}: {error}); start it with VLLM_SERVER_DEV_MODE=1, as docs/engines.md shows"
            ) from error
        if mode != _LOGPROBS_MODE:
            raise EngineError(
                f"{client.url} reports log-probs in mode {mode!r}: not those of the distribution that it samples from; "
                f"start it with --logprobs-mode {_LOGPROBS_MODE}"
            )
        self._check_vocabulary(client, name)
        logger.info(
            "%s serves %s from %s, at most %d ids",
            client.url,
            name,
            settings.get("model", "an unknown place"),
            max_length,
        )
        return name, max_length

    def _check_vocabulary(self, client: JsonClient, name: str) -> None:
        """Raises: EngineError unless the server's ids end where the policy's do."""

        def knows(number: int) -> bool:
            body = {"model": name, "prompt": [0], "max_tokens": 1, "allowed_token_ids": [number]}
            try:
                client.post(_COMPLETIONS, body)
            except EngineError as error:
                if "vocab" in str(error):
                    return False
                raise
            return True

        if not knows(self._vocab_size - 1) or knows(self._vocab_size):
            raise EngineError(
                f"the model behind {client.url} has another vocabulary than the policy, whose ids are 0 to "
                f"{self._vocab_size - 1}; is it the model of this run?"
            )
