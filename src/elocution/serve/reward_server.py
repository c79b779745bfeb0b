"""The reward server as a process: load, test, listen, drain."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from prometheus_client import start_http_server

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.codecs.base import Codec
from elocution.config.secrets import read_secret
from elocution.config.tree import RunConfig
from elocution.errors import ConfigError, RewardError
from elocution.rewards import load_reward
from elocution.rewards.languages import check_languages
from elocution.rewards.self_test import SelfTest, check_scores, load_self_test
from elocution.serve.metrics import RewardMetrics
from elocution.serve.reward_app import RewardService, build_app
from elocution.serve.reward_model import CodeModel, WaveModel
from elocution.serve.scoring import Clip, ClipScorer, ScoringQueue, describe_version
from elocution.serve.sockets import bind, is_loopback, listen, listening_url, unusable, uvicorn_server
from elocution.train.interrupt import StopRequest

__all__ = ["check_server_config", "reward_service", "serve_rewards"]

logger = logging.getLogger(__name__)


def check_server_config(config: RunConfig) -> None:
    """Finds what cannot be served before anything is loaded.

    Raises: ConfigError naming the key.
    """
    if config.reward.type == "remote":
        raise ConfigError(
            'reward.type is "remote", which asks a reward server; a server needs a reward of its own, '
            "for example --set reward.type=wer_nll"
        )
    check_languages(config.reward, config.data.languages)
    read_secret(config.reward_server.token_env, "reward_server.token_env")


def serve_rewards(config: RunConfig, on_ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT, answers what is under way, and returns; `on_ready` hears the server's URL.

    Raises: ConfigError if the port is taken, RewardError if the reward fails its own test.
    """
    check_server_config(config)
    settings = config.reward_server
    with ExitStack() as stack:
        # uvicorn raises the signal that ended it again; here it has done its work.
        stop = stack.enter_context(StopRequest())
        listener = stack.enter_context(bind(settings.host, settings.port))
        service = stack.enter_context(reward_service(config))
        if stop:
            return
        listen(listener, settings.host)
        if settings.metrics_port:
            _serve_metrics(settings.host, settings.metrics_port, service.metrics, stack)
        if service.token is None and not is_loopback(settings.host):
            logger.warning(
                "anyone who can reach %s may use this server; set reward_server.token_env to ask for a token",
                settings.host,
            )
        on_ready(listening_url(listener, settings.host))
        uvicorn_server(build_app(service), drain_s=settings.drain_s).run(sockets=[listener])


@contextmanager
def reward_service(config: RunConfig) -> Iterator[RewardService]:
    """Codec, reward and queue, loaded and tested; they end with the context.

    Raises: ConfigError, CodecError, RewardError if the reward fails its own test.
    """
    settings, metrics = config.reward_server, RewardMetrics()
    codec = load_codec(config.codec.type, resolve_path(config.codec.path))
    test = load_self_test(config.reward.self_test)
    with load_reward(config.reward) as reward:
        scorer = ClipScorer(reward, codec, metrics)
        _test(scorer, codec, test)
        version = describe_version(config.reward, config.codec)
        queue = ScoringQueue(scorer, settings, metrics, version)
        name, languages = settings.model_name, config.data.languages
        models = (
            CodeModel(name, languages, settings, codec.frame_rate, codec.num_codebooks, codec.codebook_size),
            WaveModel(f"{name}_wav", languages, settings),
        )
        try:
            yield RewardService(
                models={model.name: model for model in models},
                queue=queue,
                metrics=metrics,
                reward_version=version,
                token=read_secret(settings.token_env, "reward_server.token_env"),
                max_body=int(settings.max_body_mib * 2**20),
                serves_metrics=not settings.metrics_port,
            )
        finally:
            queue.close()


def _test(scorer: ClipScorer, codec: Codec, test: SelfTest) -> None:
    """Scores the self-test's clips as they are, and the known one through the codec too."""
    asked = partial(
        Clip, test.text, test.language, voice=test.known, voice_text=test.text, description=test.description
    )
    clips = [asked(clip, clip.duration_s) for clip in test.clips]
    check_scores(test, [verdict.score for verdict in scorer(clips)], subject="the reward")
    if test.known is None:
        return
    (verdict,) = scorer([asked(codec.encode(test.known), test.known.duration_s)])
    if verdict.score.value is None or verdict.score.value < test.min_reward:
        raise RewardError(
            f"the known clip scores {verdict.score.value} once it went through the codec "
            f"({verdict.reason or verdict.score.transcript!r}), expected at least "
            f"reward.self_test.min_reward = {test.min_reward}"
        )


def _serve_metrics(host: str, port: int, metrics: RewardMetrics, stack: ExitStack) -> None:
    try:
        server, thread = start_http_server(port, addr=host, registry=metrics.registry)
    except OSError as error:
        raise unusable(host, port, error) from error
    stack.callback(thread.join)
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
