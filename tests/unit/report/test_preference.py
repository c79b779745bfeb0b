import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elocution.cli.main import app
from elocution.errors import DataError
from elocution.report.preference import Vote, count_votes, read_votes

SIDES = ("before", "last")


def votes(*choices: str | None) -> list[Vote]:
    return [Vote(utterance_id=f"h-{n}", text="the doctor", first="last", choice=c) for n, c in enumerate(choices)]


def saved(path: Path, **values: object) -> Path:
    vote = {"utterance_id": "h-1", "text": "the doctor", "first": "before", "choice": "last"}
    content = {"format": "elocution-preference-1", "run": "mine", "sides": SIDES, "saved_at": "2026-01-01T00:00:00Z"}
    path.write_text(json.dumps({**content, "votes": [vote] * 9 + [vote | {"choice": None}], **values}))
    return path


def test_the_interval_is_wilsons() -> None:
    # 7 of 10, z = 1.96: centre (0.7 + z²/20) / (1 + z²/10) = 0.6445, reach z / (1 + z²/10) sqrt(0.021 + z²/400) = 0.2477.
    found = count_votes(votes(*["last"] * 7, *["before"] * 3, None), SIDES)
    assert (found.preferred, found.decided, found.undecided) == (7, 10, 1)
    assert found.low == pytest.approx(0.3968, abs=1e-4)
    assert found.high == pytest.approx(0.8922, abs=1e-4)
    assert found.verdict == "no preference is shown"


def test_agreement_of_all_is_a_preference_but_no_certainty() -> None:
    last, before = count_votes(votes(*["last"] * 8), SIDES), count_votes(votes(*["before"] * 8), SIDES)
    assert last.verdict == "last is preferred"
    assert last.low < 0.7 < last.high
    assert before.verdict == "before is preferred"
    assert before.high == pytest.approx(1 - last.low)


def test_votes_without_any_preference_have_no_share() -> None:
    with pytest.raises(DataError, match="none of the 2 votes has a preference"):
        count_votes(votes(None, None), SIDES)


def test_the_command_prints_share_and_interval(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["preference", str(saved(tmp_path / "votes.json"))])
    assert done.exit_code == 0
    assert "“last” preferred over “before” in 9 of 9 pairs: 100.0 % [70.1, 100.0]" in done.output
    assert "1 without a preference; last is preferred" in done.output


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"format": "elocution-preference-2"}, "format: Input should be 'elocution-preference-1'"),
        ({"sides": ["one", "two"]}, "the choice 'last' for 'h-1' is none of"),
        ({"votes": [{"utterance_id": "h-1"}]}, "votes.0.text: Field required"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, values: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match="holds no votes of a blind test") as refused:
        read_votes(saved(tmp_path / "votes.json", **values))
    assert message in str(refused.value)
    with pytest.raises(DataError, match="cannot read the votes"):
        read_votes(tmp_path / "absent.json")
