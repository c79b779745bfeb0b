"""What docs/llasa.md says is tested, is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_fault_of_the_public_code_has_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "llasa.md").read_text(encoding="utf-8")
    rows = text.partition("## What the public code does wrong")[2].partition("\n## ")[0]
    named = re.findall(r"`(test_\w+)`", rows)
    assert rows.count("\n| ") - 1 == 13
    written = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name in named if f"def {name}(" not in written] == []
