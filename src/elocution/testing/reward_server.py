"""A reward server within the process, for tests of its clients."""

from collections.abc import Iterator
from contextlib import contextmanager

from elocution.config.tree import RunConfig
from elocution.serve.reward_app import build_app
from elocution.serve.reward_server import reward_service
from elocution.testing.running_app import running

__all__ = ["running_reward_server"]


@contextmanager
def running_reward_server(config: RunConfig) -> Iterator[str]:
    """The URL of a server of `config` on a free loopback port; it drains and ends with the context."""
    with reward_service(config) as service, running(build_app(service), drain_s=config.reward_server.drain_s) as url:
        yield url
