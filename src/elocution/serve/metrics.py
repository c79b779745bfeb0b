"""What the reward server counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["RewardMetrics"]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class RewardMetrics:
    """Counters and histograms in a registry of their own, so that a process may hold several servers."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "elocution_requests", "Inference requests by model and HTTP status", ["model", "code"], registry=registry
        )
        self.request_seconds = Histogram(
            "elocution_request_seconds", "Time from a request's body to its answer", buckets=_SECONDS, registry=registry
        )
        self.clips = Counter(
            "elocution_clips", "Clips by scored, unscorable and unscored", ["status"], registry=registry
        )
        self.remembered = Counter(
            "elocution_clips_remembered", "Clips answered by a score that was known or under way", registry=registry
        )
        self.gated = Counter(
            "elocution_clips_gated", "Clips without speech, to which no recogniser listened", registry=registry
        )
        self.waiting = Gauge("elocution_clips_waiting", "Clips that are in no batch yet", registry=registry)
        self.batch_size = Histogram(
            "elocution_batch_clips", "Clips that were scored together", buckets=_SIZES, registry=registry
        )
        self.decode_seconds = Histogram(
            "elocution_decode_seconds", "Codes to sound, by batch", buckets=_SECONDS, registry=registry
        )
        self.score_seconds = Histogram(
            "elocution_score_seconds", "Listening, by batch", buckets=_SECONDS, registry=registry
        )
