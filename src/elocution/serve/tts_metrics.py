"""What the TTS server counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["TtsMetrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class TtsMetrics:
    """Counters and histograms in a registry of their own, so that a process may hold several servers."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "elocution_tts_requests", "Requests by route and HTTP status", ["route", "code"], registry=registry
        )
        self.request_seconds = Histogram(
            "elocution_tts_request_seconds",
            "Time from a request's body to its answer",
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_size = Histogram(
            "elocution_tts_batch_requests", "Requests that were answered together", buckets=_SIZES, registry=registry
        )
        self.ids = Counter("elocution_tts_ids", "Ids that were drawn", registry=registry)
        self.waiting = Gauge("elocution_tts_waiting", "Requests that are in no batch yet", registry=registry)
