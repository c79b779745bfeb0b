"""One synced engine for several users, each with a temperature of its own; one of them acts at a time."""

import threading
from collections.abc import Iterator, Sequence

from elocution.errors import EngineError
from elocution.rollout.base import RolloutRequest
from elocution.rollout.sync.engine import SyncedEngine
from elocution.types import Completion

__all__ = ["EngineUser", "SharedEngine"]


class SharedEngine:
    """Lets the users of an engine take turns: a turn is one publish, with its proof, or one batch, to its last completion.

    So no user draws at another's temperature or at that of the proof, and no weights change within a batch. Safe to use
    in many threads; a thread that has begun a batch must end it before it publishes.
    """

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._engine: SyncedEngine | None = None

    @property
    def engine(self) -> SyncedEngine:
        """Raises: EngineError before `attach`."""
        if self._engine is None:
            raise EngineError("the engine has not been started")
        return self._engine

    def attach(self, engine: SyncedEngine) -> None:
        """Gives the users the engine that they share."""
        self._engine = engine

    @property
    def is_quarantined(self) -> bool:
        """Whether the engine, if there is one, may not be drawn from since a sync failed."""
        return self._engine is not None and self._engine.status.is_quarantined

    def metrics(self) -> dict[str, float]:
        """Figures of the last sync; none before the first."""
        return {} if self._engine is None else self._engine.metrics()

    def publish(self, version: int) -> None:
        """As `SyncedEngine.publish`; a version that the engine is proven to have is not brought again."""
        with self._turn:
            status = self.engine.status
            if status.is_quarantined or status.policy_version != version:
                self.engine.publish(version)

    def stream(
        self, requests: Sequence[RolloutRequest], *, temperature: float
    ) -> Iterator[tuple[int, int, Completion]]:
        """As `SyncedEngine.stream`, at `temperature`; the turn ends with the iterator, exhausted or closed."""
        with self._turn:
            self.engine.temperature = temperature
            yield from self.engine.stream(requests)


class EngineUser:
    """A `RolloutEngine` that draws from `shared` at a temperature of its own."""

    def __init__(self, shared: SharedEngine, *, temperature: float) -> None:
        self._shared = shared
        self.temperature = temperature

    def publish(self, version: int) -> None:
        """As `SharedEngine.publish`."""
        self._shared.publish(version)

    def stream(self, requests: Sequence[RolloutRequest]) -> Iterator[tuple[int, int, Completion]]:
        """As `SharedEngine.stream`."""
        return self._shared.stream(requests, temperature=self.temperature)
