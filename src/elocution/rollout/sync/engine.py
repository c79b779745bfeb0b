"""A rollout engine whose `publish` is a proven sync: written, read back, loaded, compared, and only then drawn from.

write -> read back -> [quarantine] -> load -> prove -> [release], version advances -> older versions deleted
                            ^                   |
                            +---- restart <-----+  up to `max_retries` times, then SyncError
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from torch import nn

from elocution.errors import CheckpointError, ElocutionError, EngineError, SyncError
from elocution.rollout.base import RolloutRequest, in_order
from elocution.rollout.canary import Canary
from elocution.rollout.sync.agreement import Following
from elocution.rollout.sync.base import REHEARSAL_VERSION, Drawer, Loader, LoadReport
from elocution.rollout.sync.manifest import Manifest
from elocution.rollout.sync.payloads import Payload
from elocution.rollout.sync.proof import Evidence, Proof, Values
from elocution.rollout.sync.rehearsal import SCALES, perturbed
from elocution.rollout.sync.store import VersionStore, WrittenVersion
from elocution.types import Completion

__all__ = ["SyncStatus", "SyncedEngine"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Attempt:
    """The attempt that succeeded. Units: seconds."""

    evidence: Evidence
    load_s: float
    prove_s: float
    retries: int


@dataclass(frozen=True)
class SyncStatus:
    """What an engine is proven to have. `synced_at` is UTC, ISO 8601; all None before the first sync."""

    policy_version: int | None
    fingerprint: str | None
    synced_at: str | None
    directory: Path | None
    is_quarantined: bool


class SyncedEngine:
    """Draws with `engine`, to which `publish` brings the trainer's weights; one that is not proven is never drawn from."""

    def __init__(
        self,
        engine: Drawer,
        load: Loader,
        payload: Payload,
        proof: Proof,
        store: VersionStore,
        *,
        trained: Mapping[str, nn.Parameter],
        seed: int,
        max_retries: int,
        restart: Callable[[], None] | None = None,
        canary: Canary | None = None,
    ) -> None:
        """`load` is the engine's `load_weights` or `load_adapter`, as `payload` needs it.

        The first `publish` begins with a rehearsal, for which the `trained` parameters are moved by noise from `seed` and
        put back. `restart` is called before a version is loaded again; it may end and start the engine's process.
        `canary` is for temperature 1, and is asked for once, after the first version is proven.
        """
        self._engine, self._load, self._payload, self._proof, self._store = engine, load, payload, proof, store
        self._trained, self._seed = trained, seed
        self._max_retries, self._restart, self._canary = max_retries, restart, canary
        self._evidence: Evidence | None = None
        self._manifest: Manifest | None = None
        self._has_rehearsed = False
        self._metrics: dict[str, float] = {}
        self._status = SyncStatus(None, None, None, None, is_quarantined=False)

    @property
    def temperature(self) -> float:
        """Softmax temperature of what is drawn."""
        return self._engine.temperature

    @temperature.setter
    def temperature(self, value: float) -> None:
        self._engine.temperature = value

    @property
    def status(self) -> SyncStatus:
        """What the engine is proven to have now."""
        return self._status

    def metrics(self) -> dict[str, float]:
        """Figures of the last sync, by the names of metrics.jsonl."""
        return dict(self._metrics)

    def publish(self, version: int) -> None:
        """After this returns, the engine is proven to draw with the policy's current weights, stamped `version`.

        Raises: SyncError if it could not be proven: the engine is in quarantine until another `publish` succeeds.
        EngineError if it answers a prompt with what belongs to another one. StorageError, CheckpointError if the version
        could not be written: the engine draws with what it had before.
        """
        if not self._has_rehearsed:
            self._rehearse()
            self._has_rehearsed = True
        self._sync(version)
        if self._canary is not None:
            self._status = replace(self._status, is_quarantined=True)
            with self._at_temperature(1.0):
                self._canary(self._engine.stream)
            self._status, self._canary = replace(self._status, is_quarantined=False), None

    def generate(self, requests: Sequence[RolloutRequest]) -> list[list[Completion]]:
        """The completions of each request, in the order of its seeds; errors as in `stream`."""
        return in_order(requests, self.stream(requests))

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        """Raises: SyncError in quarantine, before the first sync, or if a completion bears another version."""
        if self._status.is_quarantined:
            raise SyncError(
                f"the engine is in quarantine: it is not proven to have whole weights since its last sync ({self._last()})"
            )
        version = self._status.policy_version
        if version is None or version == REHEARSAL_VERSION:
            raise SyncError("no weights have been published to the engine")
        for index, sibling, completion in self._engine.stream(requests):
            if completion.policy_version != version:
                raise SyncError(
                    f"a completion bears the version {completion.policy_version}, the engine was proven to have {version}"
                )
            yield index, sibling, completion

    def _rehearse(self) -> None:
        """Syncs weights that nothing else could give.

        Raises: SyncError if no noise changes what the trainer says of the probes, besides `publish`'s.
        """
        before = self._proof.expected()
        for scale in SCALES:
            with perturbed(self._trained, scale=scale, seed=self._seed):
                if self._proof.distinguishes(before, self._proof.expected()):
                    self._sync(REHEARSAL_VERSION)
                    return
        raise SyncError(
            f"noise of {SCALES[-1]:.3g} times the trained weights does not change the probes: what is trained?"
        )

    def _sync(self, version: int) -> None:
        expected = self._proof.expected()
        written = self._store.write(version, self._payload.write, read_before=self._payload.read_before)
        self._status = replace(self._status, is_quarantined=True)
        attempt = self._load_until_proven(version, written, expected)
        if version != REHEARSAL_VERSION:  # weights that nobody must take for a policy's
            self._store.mark_proven(written.path)
        following = attempt.evidence.following
        if following is not Following.UNTOLD:  # else the next movement is counted from where this one began
            self._evidence, self._manifest = attempt.evidence, written.manifest
        self._status = SyncStatus(
            policy_version=version,
            fingerprint=written.manifest.fingerprint,
            synced_at=datetime.now(UTC).isoformat(timespec="seconds"),
            directory=written.path,
            is_quarantined=False,
        )
        if following is Following.UNTOLD:
            logger.info(
                "version %d: the weights moved too little for the probes to tell whether the engine has followed",
                version,
            )
        self._metrics = {
            "sync/policy_version": version,
            "sync/write_s": written.write_s,
            "sync/verify_s": written.verify_s,
            "sync/load_s": attempt.load_s,
            "sync/prove_s": attempt.prove_s,
            "sync/bytes": written.bytes_written,
            "sync/retries": attempt.retries,
            "sync/is_told": float(following is not Following.UNTOLD),
            **attempt.evidence.figures,
        }

    def _load_until_proven(self, version: int, written: WrittenVersion, expected: Values) -> _Attempt:
        has_changed = self._manifest is None or self._manifest.fingerprint != written.manifest.fingerprint
        failures: list[ElocutionError] = []
        for retries in range(1 + self._max_retries):
            if failures:
                logger.warning("version %d is not proven, loading it again: %s", version, failures[-1])
            started = time.perf_counter()
            try:
                if failures and self._restart is not None:
                    self._restart()
                report = self._load(written.path, version)
                loaded = time.perf_counter()
                _check_report(report, written.manifest, self._payload.adapted_modules)
                with self._at_temperature(1.0):
                    evidence = self._proof.check(expected, self._evidence if has_changed else None)
            except (EngineError, CheckpointError) as error:
                failures.append(error)
            else:
                return _Attempt(evidence, loaded - started, time.perf_counter() - loaded, retries)
        raise SyncError(self._describe_failure(version, written, failures)) from failures[-1]

    @contextmanager
    def _at_temperature(self, temperature: float) -> Iterator[None]:
        """For what is compared over several syncs, while the temperature of rollouts may go down."""
        kept = self._engine.temperature
        self._engine.temperature = temperature
        try:
            yield
        finally:
            self._engine.temperature = kept

    def _describe_failure(self, version: int, written: WrittenVersion, failures: Sequence[ElocutionError]) -> str:
        what = "the rehearsal, weights moved by noise," if version == REHEARSAL_VERSION else f"version {version}"
        advice = ""
        if self._payload.adapted_modules is not None:
            advice = "; if the engine does not take the adapter's layers, use rollout.sync.strategy = 'delta'"
        return (
            f"after {len(failures)} attempts the engine is not proven to have {what} in {written.path}, and is in "
            f"quarantine ({self._last()}); last: {failures[-1]}{advice}"
        )

    def _last(self) -> str:
        status = self._status
        if status.policy_version in (None, REHEARSAL_VERSION):
            return "no version was proven before"
        return f"the last proven is version {status.policy_version} of {status.synced_at} in {status.directory}"


def _check_report(report: LoadReport | None, manifest: Manifest, adapted_modules: int | None) -> None:
    """Raises: SyncError if the engine says itself that it has something else."""
    if report is None:
        return
    if adapted_modules is not None and report.bound_modules not in (None, adapted_modules):
        raise SyncError(f"the engine bound the adapter to {report.bound_modules} of {adapted_modules} layers")
    if report.fingerprint not in (None, manifest.fingerprint):
        raise SyncError(
            f"the engine's tensors have fingerprint {report.fingerprint[:12]}…, those written {manifest.fingerprint[:12]}…"
        )
