"""Policies that go wrong in a known way, a little more with each step: which alarm, and by which step.

The policies are scripted, the speech is real: recordings, encoded into codes, changed, and measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import resample_poly

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.eval.guards import MONITORS, AlarmLevel, check_monitors, measure_monitors, worst_examples
from elocution.measures.compare import compare
from elocution.measures.error_rates import corpus_error_rate
from elocution.measures.pocketsphinx import BigramTranscriber, OpenTranscriber
from elocution.rollout.outcomes import classify_outcome
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Utterance

EVERY = 10  # steps between two looks
STEPS = 200
Policy = Callable[[Rollout, int], Rollout]


@pytest.fixture(scope="module")
def base(spoken: dict[str, Audio]) -> list[Rollout]:
    codec = load_codec("tiny", resolve_path("builtin:tiny-codec"))
    rollouts = []
    for text, audio in spoken.items():
        codes = codec.encode(audio)
        completion = Completion(codes, np.zeros(codes.shape, np.float32), FinishReason.STOP, 0)
        rollouts.append(Rollout(Utterance(text, text), completion, codes, audio, Outcome.SPEECH))
    return rollouts


def sounding(rollout: Rollout, samples: NDArray[np.float64]) -> Rollout:
    assert rollout.audio is not None
    audio = Audio(samples.astype(np.float32), rollout.audio.sample_rate)
    outcome = classify_outcome(rollout.codes, audio, rollout.completion.finish_reason)
    return replace(rollout, audio=audio, outcome=outcome)


def samples_of(rollout: Rollout) -> NDArray[np.float64]:
    assert rollout.audio is not None
    return rollout.audio.samples.astype(np.float64)


def shouting(rollout: Rollout, step: int) -> Rollout:
    """A tenth of a dB louder each step, and cut off at full scale."""
    return sounding(rollout, np.clip(samples_of(rollout) * 10 ** (0.1 * step / 20), -1, 1))


def flat(rollout: Rollout, step: int) -> Rollout:
    """Goes over from speech to a voice of one pitch with the loudness of the speech."""
    speech = samples_of(rollout)
    assert rollout.audio is not None
    time = np.arange(len(speech)) / rollout.audio.sample_rate
    buzz = sum(np.sin(2 * np.pi * 150 * harmonic * time) / harmonic for harmonic in range(1, 12))
    level = np.sqrt(np.convolve(speech**2, np.full(400, 1 / 400), "same"))
    share = min(1.0, step / 100)
    return sounding(rollout, (1 - share) * speech + share * level * buzz)


def hurried(rollout: Rollout, step: int) -> Rollout:
    """Half a percent faster each step."""
    factor = round(1000 * 1.005**step)
    common = gcd(1000, factor)
    return sounding(rollout, resample_poly(samples_of(rollout), 1000 // common, factor // common))


def repeating(rollout: Rollout, step: int) -> Rollout:
    """Says more and more of its end again, until it no longer ends."""
    again = np.concatenate([rollout.codes, *[rollout.codes[-8:]] * (step // 10)])
    reason = FinishReason.LENGTH if step >= 150 else FinishReason.STOP
    return replace(rollout, codes=again, completion=replace(rollout.completion, finish_reason=reason))


def silent(rollout: Rollout, step: int) -> Rollout:
    """Falls silent earlier and earlier."""
    speech = samples_of(rollout)
    return sounding(rollout, np.where(np.arange(len(speech)) < len(speech) * (1 - step / STEPS), speech, 0.0))


def hissing(rollout: Rollout, step: int) -> Rollout:
    """Hiss under the speech, a fifth of a dB louder each step: what remains is enough for who knows the words."""
    speech = samples_of(rollout)
    hiss = np.random.default_rng((step, len(speech))).normal(0, 1, len(speech))
    return sounding(rollout, speech + np.sqrt(np.mean(speech**2)) * 10 ** ((0.2 * step - 40) / 20) * hiss)


def healthy(rollout: Rollout, step: int) -> Rollout:
    """Differs from the base as samples do: a little louder or quieter, faster or slower, noisier."""
    generator = np.random.default_rng((step, len(rollout.codes)))
    factor = int(generator.integers(96, 105))
    changed = resample_poly(samples_of(rollout), 100, factor) * 10 ** (generator.normal(0, 1.0) / 20)
    return sounding(rollout, changed + generator.normal(0, 1e-4, len(changed)))


def watch(base: Sequence[Rollout], policy: Policy) -> tuple[dict[str, int], dict[str, int]]:
    """At which step each monitor first warned or did worse, and at which it first asked for a stop."""
    before = measure_monitors(base)
    warned: dict[str, int] = {}
    stopped: dict[str, int] = {}
    for step in range(EVERY, STEPS + 1, EVERY):
        for alarm in check_monitors(before, measure_monitors([policy(rollout, step) for rollout in base])):
            warned.setdefault(alarm.monitor, step)
            if alarm.level is AlarmLevel.STOP:
                stopped.setdefault(alarm.monitor, step)
    return warned, stopped


@pytest.mark.parametrize(
    ("policy", "monitors", "warns_by", "stops_by"),
    [
        (shouting, {"level_db", "clipped_share"}, 50, 100),
        (flat, {"f0_spread"}, 100, 120),
        (hurried, {"rate"}, 40, 70),
        (repeating, {"repeated_share", "length_codes", "no_stop_share"}, 50, 150),
        (silent, {"silence_share", "rate"}, 50, 100),
    ],
)
def test_s12_a_policy_that_collapses_warns_and_then_stops(
    base: list[Rollout], policy: Policy, monitors: set[str], warns_by: int, stops_by: int
) -> None:
    warned, stopped = watch(base, policy)
    assert monitors & warned.keys(), warned
    assert min(warned[name] for name in monitors & warned.keys()) <= warns_by, warned
    assert min(stopped[name] for name in monitors & stopped.keys()) <= stops_by, stopped


def test_a_healthy_run_raises_nothing_in_200_steps(base: list[Rollout]) -> None:
    assert watch(base, healthy) == ({}, {})


def test_s13_a_policy_that_games_the_reward_recogniser_opens_a_gap() -> None:
    # The reward hears one error less in fifty words each step, the judge none less.
    base = {"hacking_gap": 0.28 - 0.24}
    levels = {}
    for step in range(EVERY, STEPS + 1, EVERY):
        gap = 0.28 - max(0.0, 0.24 - 0.0024 * step)
        for alarm in check_monitors(base, {"hacking_gap": gap}):
            levels.setdefault(alarm.level, step)
    assert levels == {AlarmLevel.WARN: 50}
    # Where the judge hears more errors as well, the run stops.
    alarms = check_monitors(base, {"hacking_gap": 0.35 - 0.0})
    assert [alarm.level for alarm in alarms] == [AlarmLevel.STOP]
    assert "held-out WER less the reward's" in str(alarms[0])


def test_s13_hiss_that_the_rewards_recogniser_hears_through_and_the_judge_does_not_opens_a_gap(
    base: list[Rollout],
) -> None:
    def word_error_rate(recogniser: BigramTranscriber | OpenTranscriber, policy: Policy, step: int) -> float:
        heard = [(each.utterance.text, policy(each, step).audio) for each in base]
        counts = [
            compare(text, recogniser.transcribe(audio), "en").counts for text, audio in heard if audio is not None
        ]
        return corpus_error_rate(counts)

    reward, judge = BigramTranscriber(), OpenTranscriber()
    gaps = {
        step: word_error_rate(judge, hissing, step) - word_error_rate(reward, hissing, step) for step in (0, 100, 140)
    }
    alarms = {step: check_monitors({"hacking_gap": gaps[0]}, {"hacking_gap": gap}) for step, gap in gaps.items()}
    assert alarms[0] == []
    assert alarms[100], gaps
    assert [alarm.level for alarm in alarms[140]] == [AlarmLevel.STOP], gaps


@pytest.mark.parametrize(
    ("name", "base", "warns", "stops"),
    [("kl", 0.0, 1.5, 4.0), ("entropy", 1.0, 0.25, 0.05), ("speaker_similarity", 0.7, 0.62, 0.5)],
)
def test_values_of_the_learner_have_their_levels(name: str, base: float, warns: float, stops: float) -> None:
    assert check_monitors({name: base}, {name: base}) == []
    assert [alarm.level for alarm in check_monitors({name: base}, {name: warns})] == [AlarmLevel.WARN]
    assert [alarm.level for alarm in check_monitors({name: base}, {name: stops})] == [AlarmLevel.STOP]


def test_stops_come_first_and_what_is_no_number_stops() -> None:
    base = {"rate": 10.0, "kl": 0.0, "entropy": 1.0}
    alarms = check_monitors(base, {"rate": 12.0, "kl": float("nan"), "entropy": 0.05})
    assert [(alarm.monitor, alarm.level) for alarm in alarms] == [
        ("entropy", AlarmLevel.STOP),
        ("kl", AlarmLevel.STOP),
        ("rate", AlarmLevel.WARN),
    ]
    assert alarms[2].row()["text"] == (
        "rate is 12 letters and digits per second, above the base's 10 by more than 15 % of it"
    )


def test_completions_without_speech_are_counted_and_have_no_prosody(base: list[Rollout]) -> None:
    mute = [replace(rollout, audio=None, outcome=Outcome.EMPTY) for rollout in base]
    values = measure_monitors(mute)
    assert values["no_speech_share"] == 1
    assert "rate" not in values
    assert [alarm.monitor for alarm in check_monitors(measure_monitors(base), values)] == ["no_speech_share"]
    with pytest.raises(ValueError, match="at least one"):
        measure_monitors([])


def test_examples_are_those_that_moved_most(base: list[Rollout]) -> None:
    now = [hurried(rollout, 30 * index) for index, rollout in enumerate(base)]
    alarms = check_monitors(measure_monitors(base), measure_monitors(now))
    by_name = {alarm.monitor: alarm for alarm in alarms}
    found = worst_examples(by_name["rate"], now)
    assert found[0] == now[-1]
    assert len(found) == 3


def test_every_monitor_stops_later_than_it_warns() -> None:
    assert all(0 < monitor.warn < monitor.stop for monitor in MONITORS.values())
