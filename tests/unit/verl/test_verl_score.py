"""veRL's reward function: the codes in a completion's text, scored by a real reward server, or a reason and no silent zero."""

import json
import pickle
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.config.load import dump_config, load_config
from elocution.errors import RewardUnavailable
from elocution.testing.reward_server import running_reward_server
from elocution.types import Audio
from elocution.verl.score import CodeScorer, Completion, FailureWatch, compute_score

TEXT = "the little brother was young"


def run_config(url: str, folder: Path, *overrides: str) -> str:
    """The config file of a run whose rewards come from `url`."""
    settings = ["reward.type=remote", f'reward.remote.urls=["{url}"]', "reward.remote.retries=0", *overrides]
    path = folder / "config.toml"
    path.write_text(dump_config(load_config(None, settings)))
    return str(path)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_reward_server(load_config(None, ["reward.workers=1"])) as url:
        yield run_config(url, tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def said(spoken: dict[str, Audio]) -> str:
    codes = load_codec("tiny", resolve_path("builtin:tiny-codec")).encode(spoken[TEXT])[:, 0]
    return "".join(f"<|s_{code}|>" for code in codes) + "<|eos1|>"


def test_speech_is_heard_whether_arguments_come_in_order_or_by_name(config: str, said: str) -> None:
    by_name = compute_score(
        data_source="d", solution_str=said, ground_truth=TEXT, extra_info={"index": 1}, config=config, num_turns=2
    )
    in_order = compute_score("d", said, TEXT, None, config=config)
    assert by_name == in_order
    assert by_name["score"] > 0.7  # type: ignore[operator]
    assert (by_name["status"], by_name["is_unscored"], by_name["error"]) == ("scored", 0.0, "")
    assert by_name["transcript"] == TEXT
    assert json.loads(str(by_name["measures"]))["wer"] == 0.0
    assert compute_score("d", said, "the doctor visited the school", config=config)["score"] < 0.5  # type: ignore[operator]


def test_s18_it_goes_through_pickle_with_its_settings(config: str, said: str) -> None:
    again = pickle.loads(pickle.dumps(partial(compute_score, config=config)))
    assert again("d", said, TEXT)["transcript"] == TEXT


def test_a_prefix_that_the_prompt_holds_is_heard_too(config: str, said: str) -> None:
    tokens = said.replace("|><|", "|> <|").split()
    prefix, rest = "".join(tokens[:12]), "".join(tokens[12:])
    whole = compute_score("d", said, TEXT, config=config)
    assert compute_score("d", rest, TEXT, {"prefix_speech_str": prefix}, config=config) == whole


@pytest.mark.parametrize(
    ("said_instead", "extra", "reason"),
    [
        ("", {}, "no speech code"),
        ("a text of words", {}, "no speech code"),
        (None, {"is_truncated": True}, "used up its budget"),
    ],
)
def test_s27_no_speech_and_a_runaway_are_the_policys_fault(
    config: str, said: str, said_instead: str | None, extra: dict[str, bool], reason: str
) -> None:
    row = compute_score("d", said if said_instead is None else said_instead, TEXT, extra, config=config)
    assert (row["score"], row["status"], row["is_unscored"]) == (0.0, "unscorable", 0.0)
    assert reason in str(row["error"])


def test_every_row_has_the_same_keys(config: str, said: str) -> None:
    rows = [compute_score("d", text, TEXT, config=config) for text in (said, "", "<|s_999999|>")]
    assert len({tuple(row) for row in rows}) == 1


def test_what_a_server_refuses_is_unscored_and_says_so(config: str) -> None:
    row = compute_score("d", "<|s_999999|>", TEXT, config=config)
    assert (row["status"], row["is_unscored"]) == ("unscored", 1.0)
    assert "code_out_of_range" in str(row["error"])


def test_a_cut_off_completion_is_scored_where_the_config_keeps_it(tmp_path: Path, said: str, config: str) -> None:
    url = load_config(Path(config)).reward.remote.urls[0]
    kept = load_config(Path(run_config(url, tmp_path, "algorithm.truncated=keep")))
    codes = tuple(int(part.split("|")[0]) for part in said.split("<|s_")[1:])
    scorer = CodeScorer(kept)
    assert scorer(Completion(TEXT, codes, is_truncated=True))["status"] == "scored"
    scorer.close()


def test_s02_a_server_that_is_not_there_is_named_and_no_number(tmp_path: Path, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = run_config(f"http://127.0.0.1:{port}", tmp_path, "reward.remote.deadline_s=2")
    with pytest.raises(RewardUnavailable, match=str(port)):
        compute_score("d", said, TEXT, config=config)


def test_s02_past_its_share_of_failures_the_run_stops() -> None:
    watch = FailureWatch(0.25, window=8)
    for error in ("down", None, "down", None, None):
        watch.record(error)
    with pytest.raises(RewardUnavailable, match=r"3 of the last 8 .*max_unscored_share = 0.25; the last: gone"):
        watch.record("gone")


def test_s02_failures_that_lie_back_are_forgotten_and_a_share_of_0_takes_none() -> None:
    watch = FailureWatch(0.25, window=8)
    for _ in range(10):
        for error in ("down", *[None] * 7):
            watch.record(error)
    with pytest.raises(RewardUnavailable):
        FailureWatch(0.0, window=8).record("down")
