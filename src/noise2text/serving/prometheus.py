"""What the service counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

__all__ = ["ServiceMetrics"]

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class ServiceMetrics:
    """Requests by route and status, their time, and the sizes of the batches."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "noise2text_requests", "answered requests", ["route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "noise2text_request_seconds", "seconds to answer", ["route"], registry=self.registry
        )
        self.batch_texts = Histogram(
            "noise2text_batch_texts", "texts in a batch", ["model"], buckets=SIZES, registry=self.registry
        )
        self.batch_requests = Histogram(
            "noise2text_batch_requests",
            "requests in a batch",
            ["model"],
            buckets=SIZES,
            registry=self.registry,
        )

    def observe_batch(self, model: str, texts: int, requests: int) -> None:
        """Count a batch."""
        self.batch_texts.labels(model).observe(texts)
        self.batch_requests.labels(model).observe(requests)

    def observe_answer(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def watch_queues(self, num_waiting: Callable[[], Mapping[str, int]]) -> None:
        """Report the waiting texts of each model that has a queue."""
        self.registry.register(_Queues(num_waiting))

    def text(self) -> bytes:
        """Everything that was counted, in the text format of Prometheus."""
        return generate_latest(self.registry)


class _Queues(Collector):
    def __init__(self, num_waiting: Callable[[], Mapping[str, int]]) -> None:
        self.num_waiting = num_waiting

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily("noise2text_waiting_texts", "texts in the queue", labels=["model"])
        for model, texts in self.num_waiting().items():
            family.add_metric([model], texts)
        yield family
