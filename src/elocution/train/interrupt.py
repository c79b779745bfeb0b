"""Asking a run to stop: SIGTERM and SIGINT set a flag that the loop reads between stages."""

import signal
from types import FrameType, TracebackType
from typing import Self

__all__ = ["StopRequest"]


class StopRequest:
    """While entered, the first SIGTERM or SIGINT sets `signal_name`; a second SIGINT interrupts at once."""

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self._previous: dict[int, object] = {}

    def __bool__(self) -> bool:
        return self.signal_name is not None

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal_name is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name
