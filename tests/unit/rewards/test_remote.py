"""The client of reward servers: against a real one, and against servers that fail in every way but a number."""

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripted_server import Script, good_answer, scripted_server

from elocution.audio import write_wav
from elocution.config.load import load_config
from elocution.config.tree import RewardConfig, RunConfig
from elocution.errors import ConfigError, ElocutionError, RewardError, RewardUnavailable
from elocution.kserve import InferRequest, Message, texts_of
from elocution.rewards import load_reward
from elocution.rewards.base import Pending
from elocution.rewards.watched import WatchedStreamingReward
from elocution.rewards.wer_nll import WerNllReward
from elocution.testing.reward_server import running_reward_server
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Score, Utterance, Voice


def _rollout(text: str, audio: Audio | None, outcome: Outcome = Outcome.SPEECH) -> Rollout:
    completion = Completion(np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32), FinishReason.STOP, 0)
    return Rollout(Utterance("u", text), completion, np.zeros((1, 1), np.int64), audio, outcome)


def _clip(value: float, num_samples: int = 160) -> Audio:
    return Audio(np.full(num_samples, value, np.float32), 16_000)


def _config(*urls: str, **settings: Any) -> RewardConfig:
    remote = {"urls": urls, "deadline_s": 20.0, "retries": 2, "clips_per_request": 1} | settings
    return RewardConfig.model_validate({"type": "remote", "remote": remote, "self_test": {"audio": ""}})


@contextmanager
def _remote(config: RewardConfig) -> Iterator[WatchedStreamingReward]:
    """The reward as a run has it."""
    reward = load_reward(config)
    assert isinstance(reward, WatchedStreamingReward)
    with reward:
        yield reward


def _scores(config: RewardConfig, rollouts: Sequence[Rollout]) -> list[Score]:
    with load_reward(config) as reward:
        return reward(rollouts)


def test_a_real_server_gives_what_the_reward_gives_in_process(spoken: dict[str, Audio]) -> None:
    config = load_config(None, ["reward.workers=1"])
    rollouts = [_rollout(text, clip) for text, clip in spoken.items()]
    rollouts += [_rollout(text, clip) for text, clip in zip(spoken, [*spoken.values()][1:], strict=False)]
    rollouts += [
        _rollout("one", None, Outcome.EMPTY),
        *(_rollout("one", rollouts[0].audio, outcome) for outcome in (Outcome.SILENT, Outcome.RUNAWAY)),
        _rollout("one", None),
    ]
    with WerNllReward(config.reward) as reward:
        expected = reward(rollouts)
    with running_reward_server(config) as url:
        remote = RewardConfig.model_validate({"type": "remote", "remote": {"urls": [url]}})
        assert _scores(remote, rollouts) == expected


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["reward.asr=failing_recognisers:RaisesOnLoudClips"], "hears 'nine nine seven one' in the known clip"),
        (["reward.alpha_nll=0.001"], "gives the known clip the reward 2"),
    ],
)
def test_a_server_that_does_not_hear_is_found_before_step_1(
    overrides: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend("tests/contract")
    config = load_config(None, ["reward.workers=1", 'reward.self_test.audio=""', *overrides])
    with running_reward_server(config) as url, pytest.raises(RewardError, match=f"{url} {message}"):
        _scores(RewardConfig.model_validate({"type": "remote", "remote": {"urls": [url]}}), [])


def test_s10_clips_that_share_audio_and_text_are_sent_once() -> None:
    clip, script = _clip(0.5), Script(good_answer)
    with scripted_server(script) as url:
        scores = _scores(_config(url), [_rollout("one", clip)] * 3 + [_rollout("six", clip)])
    assert sorted(script.asked) == [["one"], ["six"]]
    assert [score.value for score in scores] == [0.5] * 4
    assert [score.transcript for score in scores] == ["one"] * 3 + ["six"]


def test_scores_keep_the_order_of_the_rollouts_whatever_their_length() -> None:
    script = Script(good_answer)
    rollouts = [_rollout(str(index), _clip(index / 64, 160 + 37 * (index * 29 % 64))) for index in range(1, 64)]
    with scripted_server(script) as url:
        scores = _scores(_config(url, clips_per_request=4, concurrency=8), rollouts)
    assert [score.value for score in scores] == [index / 64 for index in range(1, 64)]
    assert [score.transcript for score in scores] == [str(index) for index in range(1, 64)]
    assert sum(map(len, script.asked)) == 63
    assert max(map(len, script.asked)) == 4


def _first(failure: Callable[[InferRequest], Message | int | None], times: int) -> Script:
    """A server whose first answers are failures."""
    left = iter(range(times))
    lock = threading.Lock()

    def behave(request: InferRequest) -> Message | int | None:
        with lock:
            fails = next(left, None) is not None
        return failure(request) if fails else good_answer(request)

    return Script(behave)


FAILURES: dict[str, tuple[Callable[[InferRequest], Message | int | None], str]] = {
    "error": (lambda request: 500, "answered 500: no"),
    "busy": (lambda request: 503, "answered 503: no"),
    "throttled": (lambda request: 429, "answered 429: no"),
    "cut": (lambda request: None, "RemoteProtocolError"),
    "garbage": (lambda request: Message(b"{}", None), "broken answer"),
    "short": (lambda request: Message((m := good_answer(request)).body[:-1], m.json_length), "broken answer"),
    "crossed": (lambda request: good_answer(request, id="another"), "answered the request 'another'"),
    "nameless": (lambda request: good_answer(request, STATUS=[]), "left out the output STATUS"),
    "nan": (lambda request: good_answer(request, VALUES=[math.nan]), "a score must be finite"),
    "status": (lambda request: good_answer(request, STATUS=["fine"]), "unknown status 'fine'"),
    "parts": (lambda request: good_answer(request, PARTS=["{"]), "broken answer"),
    "list": (lambda request: good_answer(request, MEASURES=["[1]"]), "broken answer"),
    "text": (lambda request: good_answer(request, PARTS=['{"wer": "1"}']), "broken answer"),
    "many": (lambda request: good_answer(request, VALUES=[0.5, 0.5]), "expected outputs of shape"),
    "unscored": (
        lambda request: good_answer(request, STATUS=["unscored"], VALUES=[math.nan], ERROR=["model is down"]),
        "model is down",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_s02_a_failure_is_tried_again_and_then_a_reason(name: str) -> None:
    failure, reason = FAILURES[name]
    for times in (1, 10):
        script = _first(failure, times)
        with scripted_server(script) as url:
            (score,) = _scores(_config(url, retries=1), [_rollout("one", _clip(0.5))])
        assert len(script.asked) == 2
        if times == 1:
            assert score.value == 0.5
        else:
            assert score.value is None
            assert reason in str(score.error)


def test_a_clip_that_is_refused_does_not_take_its_request_with_it() -> None:
    script = Script(lambda request: 400 if "bad" in texts_of(request.inputs["GT_TEXT"]) else good_answer(request))
    rollouts = [_rollout(text, _clip(0.5)) for text in ("one", "bad", "six")]
    with scripted_server(script) as url:
        scores = _scores(_config(url, clips_per_request=4), rollouts)
    assert [score.value for score in scores] == [0.5, None, 0.5]
    assert "answered 400" in str(scores[1].error)
    assert script.asked == [["one", "bad", "six"], ["one"], ["bad"], ["six"]]


def test_only_what_is_unscored_is_asked_again() -> None:
    def behave(request: InferRequest) -> Message:
        texts = texts_of(request.inputs["GT_TEXT"])
        failed = [text == "bad" for text in texts]
        return good_answer(
            request,
            STATUS=["unscored" if fails else "scored" for fails in failed],
            VALUES=[math.nan if fails else 0.5 for fails in failed],
        )

    script = Script(behave)
    with scripted_server(script) as url:
        scores = _scores(
            _config(url, clips_per_request=4, retries=1), [_rollout(t, _clip(0.5)) for t in ("bad", "one")]
        )
    assert [score.value for score in scores] == [None, 0.5]
    assert [sorted(texts) for texts in script.asked] == [["bad", "one"], ["bad"]]


def test_two_servers_share_the_work_and_one_that_fails_is_left_alone() -> None:
    good, bad = Script(good_answer), Script(lambda request: 500)
    rollouts = [_rollout(str(index), _clip(0.5)) for index in range(40)]
    with scripted_server(good) as one, scripted_server(bad) as other:
        config = _config(one, other, concurrency=4)
        scores = _scores(config, rollouts)
    assert [score.value for score in scores] == [0.5] * 40
    assert len(good.asked) == 40
    assert 3 <= len(bad.asked) <= 8


def test_s05_a_server_that_never_answers_costs_no_more_than_the_deadline() -> None:
    done = threading.Event()

    def behave(request: InferRequest) -> Message | None:
        done.wait(30)
        return None

    started = time.monotonic()
    with scripted_server(Script(behave)) as url:
        try:
            (score,) = _scores(_config(url, deadline_s=0.5, retries=5), [_rollout("one", _clip(0.5))])
            seconds = time.monotonic() - started
        finally:
            done.set()
    assert score.value is None
    assert "ReadTimeout" in str(score.error)
    assert seconds < 5


def test_an_answer_that_drips_does_not_stretch_the_deadline() -> None:
    script = Script(good_answer)
    with scripted_server(script) as url, load_reward(_config(url, deadline_s=1.0, retries=0)) as reward:
        script.drip_s = 0.05
        started = time.monotonic()
        (score,) = reward([_rollout("one", _clip(0.5))])
    assert "did not finish its answer in time" in str(score.error)
    assert time.monotonic() - started < 5


def test_a_dead_server_is_waited_for_once_and_not_by_every_request() -> None:
    dead = threading.Event()
    script = Script(lambda request: None if dead.is_set() else good_answer(request))
    with (
        scripted_server(script) as url,
        load_reward(_config(url, deadline_s=2.0, retries=50, concurrency=2)) as reward,
    ):
        assert reward([_rollout("one", _clip(0.5))])[0].value == 0.5
        dead.set()
        started = time.monotonic()
        scores = reward([_rollout(str(index), _clip(0.5)) for index in range(12)])
        assert all(score.value is None for score in scores)
        assert time.monotonic() - started < 6  # 2 s at a time, each waiting for itself, would be 12
        dead.clear()
        time.sleep(2.0)  # the longest pause that failures within 2 s lead to
        assert reward([_rollout("one", _clip(0.5))])[0].value == 0.5


def _closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_server_that_cannot_be_reached_is_named_before_step_1() -> None:
    url = _closed_port()
    with pytest.raises(RewardUnavailable, match=f"{url}.*ConnectError"):
        _scores(_config(url), [])


def test_servers_that_score_differently_are_refused() -> None:
    with (
        scripted_server(Script(good_answer)) as one,
        scripted_server(Script(good_answer, version="v2")) as other,
        pytest.raises(RewardError, match=r"score differently: .* has reward version v1, .* has reward version v2"),
    ):
        _scores(_config(one, other), [])


def test_the_token_is_sent_and_stands_in_no_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_TOKEN", "s3cret")
    script = Script(good_answer)
    with scripted_server(script) as url:
        config = _config(url, token_env="REWARD_TOKEN")
        _scores(config, [])
    assert {headers["Authorization"] for headers in script.headers} == {"Bearer s3cret"}
    assert "s3cret" not in config.model_dump_json()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"urls": []}, "needs reward.remote.urls"),
        ({"urls": ["localhost:8000"]}, "must look like http://HOST:PORT"),
        ({"urls": ["file:///etc/passwd"]}, "must look like http://HOST:PORT"),
        ({"urls": ["http://[::1"]}, "is no URL"),
        ({"urls": ["http://a:1"], "token_env": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE, which is not set or empty"),
    ],
)
def test_settings_that_cannot_work_are_config_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_reward(_config(**({"urls": ()} | settings)))


def test_a_run_without_urls_is_refused_when_its_config_is_read() -> None:
    with pytest.raises(ConfigError, match=r'reward\.type = "remote" needs reward\.remote\.urls'):
        load_config(None, ["reward.type=remote"])


def test_it_must_be_entered_first() -> None:
    with pytest.raises(RewardError, match="must be entered"):
        load_reward(_config("http://127.0.0.1:1"))([])


def test_a_closed_reward_scores_nothing() -> None:
    with scripted_server(Script(good_answer)) as url:
        reward = load_reward(_config(url))
        with reward:
            pass
        with pytest.raises(ElocutionError, match="must be entered"):
            reward([_rollout("one", _clip(0.5))])


def _wait_for(pending: Sequence[Pending[Score]]) -> list[Score]:
    assert all(one.wait(20) for one in pending)
    return [one.result() for one in pending]


def test_completions_are_scored_as_they_come_and_share_requests() -> None:
    script = Script(good_answer)
    rollouts = [_rollout(str(index), _clip(index / 16)) for index in range(1, 9)]
    with scripted_server(script) as url, _remote(_config(url, clips_per_request=4, max_delay_ms=5000.0)) as reward:
        pending = [reward.start(rollout) for rollout in rollouts]
        scores = _wait_for(pending)
        assert [score.value for score in scores] == [index / 16 for index in range(1, 9)]
        assert sorted(script.asked) == [["1", "2", "3", "4"], ["5", "6", "7", "8"]]
        assert scores == reward(rollouts)


def test_one_completion_alone_waits_no_longer_than_it_may() -> None:
    script = Script(good_answer)
    with scripted_server(script) as url, _remote(_config(url, clips_per_request=64, max_delay_ms=100.0)) as reward:
        pending = reward.start(_rollout("one", _clip(0.5)))
        assert _wait_for([pending])[0].value == 0.5
    assert script.asked == [["one"]]


def test_the_first_is_scored_before_the_last_has_come() -> None:
    with scripted_server(Script(good_answer)) as url, _remote(_config(url, max_delay_ms=0.0)) as reward:
        for index in range(1, 4):
            assert _wait_for([reward.start(_rollout(str(index), _clip(index / 4)))])[0].value == index / 4


def test_without_speech_nothing_is_sent() -> None:
    script = Script(good_answer)
    with scripted_server(script) as url, _remote(_config(url)) as reward:
        silent, broken = _wait_for(
            [reward.start(_rollout("one", None, Outcome.EMPTY)), reward.start(_rollout("one", None))]
        )
    assert silent.value == 0
    assert "has no audio" in str(broken.error)
    assert script.asked == []


def test_s02_s05_deadline_and_retries_hold_for_what_comes_one_by_one() -> None:
    done = threading.Event()

    def behave(request: InferRequest) -> Message | int | None:
        text = texts_of(request.inputs["GT_TEXT"])[0]
        if text == "hangs":
            done.wait(30)
        return 500 if text == "fails" else good_answer(request)

    script = Script(behave)
    with scripted_server(script) as url, _remote(_config(url, deadline_s=1.0, retries=1)) as reward:
        started = time.monotonic()
        pending = [reward.start(_rollout(text, _clip(0.5))) for text in ("hangs", "fails", "one")]
        try:
            hangs, fails, one = _wait_for(pending)
            assert time.monotonic() - started < 5
        finally:
            done.set()
    assert "ReadTimeout" in str(hangs.error)
    assert "answered 500" in str(fails.error)
    assert one.value == 0.5
    assert script.asked.count(["fails"]) == 2


def test_what_has_not_been_sent_when_it_ends_has_no_score() -> None:
    with scripted_server(Script(good_answer)) as url:
        with _remote(_config(url, clips_per_request=64, max_delay_ms=10_000.0)) as reward:
            pending = reward.start(_rollout("one", _clip(0.5)))
        assert "closed before" in str(_wait_for([pending])[0].error)
        with pytest.raises(RewardError, match="must be entered"):
            reward.start(_rollout("one", _clip(0.5)))


def test_a_voice_its_words_a_description_and_an_emotion_are_sent_to_servers_that_take_them(tmp_path: Path) -> None:
    seen: list[InferRequest] = []

    def answer(request: InferRequest) -> Message:
        seen.append(request)
        return good_answer(request)

    write_wav(tmp_path / "ann.wav", Audio(np.full(300, 0.25, np.float32), 8_000))
    plain = _rollout("one", _clip(0.5))
    voice = Voice("ann", "her words", np.zeros((1, 1), np.int64), tmp_path / "ann.wav")
    spoken = replace(plain, utterance=Utterance("u", "two", voice=voice, description="a calm voice", emotion="sad"))
    takes = ("WAV", "PROMPT_WAV", "PROMPT_TEXT", "DESCRIPTION", "EMOTION")
    with scripted_server(Script(answer, inputs=takes)) as url:
        _scores(_config(url, clips_per_request=2), [spoken, plain])
        _scores(_config(url), [plain])
    with scripted_server(Script(answer)) as url:
        _scores(_config(url), [spoken])
    both, none, not_taken = (request.inputs for request in seen)
    row = texts_of(both["GT_TEXT"]).index("two")
    assert both["PROMPT_WAV_LENS"].values[[row, 1 - row], 0].tolist() == [300, 0]
    assert both["PROMPT_SAMPLE_RATE"].values[row, 0] == 8_000
    assert both["PROMPT_WAV"].values[row] == pytest.approx(0.25, abs=1e-4)
    sent = {name: texts_of(both[name])[row] for name in ("PROMPT_TEXT", "DESCRIPTION", "EMOTION")}
    assert sent == {"PROMPT_TEXT": "her words", "DESCRIPTION": "a calm voice", "EMOTION": "sad"}
    assert not {"PROMPT_WAV", *sent} & (none.keys() | not_taken.keys())


@pytest.mark.slow
def test_a_server_measures_the_pace_of_the_voice_that_it_is_sent_as_the_trainer_would(
    spoken: dict[str, Audio], tmp_path: Path
) -> None:
    length = {"fact": "duration_ratio", "utility": "band", "low": 0.9, "high": 1.1, "scale": 0.5}
    reward = {"type": "composite", "workers": 1, "components": {"length": length}, "self_test": {"audio": ""}}
    (text, clip), (words, recording) = list(spoken.items())[:2]
    write_wav(tmp_path / "ann.wav", recording)
    voice = Voice("ann", words, np.zeros((1, 1), np.int64), tmp_path / "ann.wav")
    rollout = replace(_rollout(text, clip), utterance=Utterance("u", text, voice=voice))
    (expected,) = _scores(RewardConfig.model_validate(reward), [rollout])
    with running_reward_server(RunConfig.model_validate({"reward": reward})) as url:
        (score,) = _scores(
            RewardConfig.model_validate(reward | {"type": "remote", "remote": {"urls": [url]}}), [rollout]
        )
    assert score.raw["duration_ratio"] == pytest.approx(expected.raw["duration_ratio"], rel=1e-6)
    assert score.raw["duration_ratio"] != pytest.approx(1.0, abs=0.01)


def test_a_voice_that_cannot_be_read_leaves_its_own_clip_unscored() -> None:
    plain = _rollout("one", _clip(0.5))
    voice = Voice("ann", "her words", np.zeros((1, 1), np.int64), Path("not/there.wav"))
    lost = replace(plain, utterance=Utterance("u", "two", voice=voice))
    with scripted_server(Script(good_answer, inputs=("WAV", "PROMPT_WAV"))) as url:
        scores = _scores(_config(url, clips_per_request=2), [plain, lost])
    assert [score.value for score in scores] == [0.5, None]
    assert "not/there.wav" in str(scores[1].error)


def test_constraints_and_baselines_work_on_what_a_server_measured() -> None:
    """The section of the server's own config, with another `type`, is that of its client."""
    parts = {"words": {"fact": "wer", "utility": "tanh"}}
    answer = {"PARTS": ['{"words": 0.5}'] * 2, "MEASURES": ['{"wer": 0.0}', '{"wer": 0.1}']}
    with scripted_server(Script(lambda request: good_answer(request, **answer))) as url:
        config = _config(url, clips_per_request=2).model_copy(
            update={
                "components": RewardConfig.model_validate({"type": "remote", "components": parts}).components,
                "combine": "z_score",
                "gate_beta": 10.0,
            }
        )
        with load_reward(config) as reward:
            scores = reward([_rollout("one", _clip(0.5)), _rollout("six", _clip(0.25))])
            assert reward.state.advance(scores)["baseline/words_mean"] == 0.5
            better = [Score(0.5, {"wer": 0.1}, parts={"words": 0.5 + 1e-4})]
            # The variance of equal parts is 0, so its floor of 1e-8 makes a ten-thousandth a whole deviation.
            assert reward.state.revalue(better)[0].value == pytest.approx(math.exp(-1))
