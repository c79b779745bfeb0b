"""Imports point one way, public names are declared, and a light import stays light."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import pytest

import elocution

SOURCE = Path(elocution.__file__).parent
LAYERS = (
    ("types", "errors", "registry", "assets", "loading", "other_python", "__init__"),
    ("files", "config", "text", "kserve"),
    ("audio",),
    ("measures", "codecs", "grpo"),
    ("policies", "rewards", "rollout", "data"),
    ("train", "eval", "tiny", "generate", "serve", "export", "verl"),
    ("report", "cli", "testing", "__main__"),
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
MODULES = sorted(SOURCE.rglob("*.py"))


def part_of(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_to_the_same_layer_or_a_lower_one(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("elocution."):
                part = name.split(".")[1]
                assert RANK[part] <= RANK[part_of(path)], f"{part_of(path)} must not import {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_are_small_and_well_named(path: Path) -> None:
    assert path.stem not in {"utils", "common", "helpers", "misc"}
    assert len(path.read_text(encoding="utf-8").splitlines()) < 500


def test_grpo_knows_nothing_of_speech_and_the_loop_names_no_family() -> None:
    for path in (SOURCE / "grpo").glob("*.py"):
        assert "elocution.policies" not in path.read_text(encoding="utf-8")
    for folder in ("train", "rollout"):
        for path in (SOURCE / folder).glob("*.py"):
            assert "llasa" not in path.read_text(encoding="utf-8").lower(), path


def public_modules() -> list[str]:
    found = pkgutil.walk_packages([str(SOURCE)], "elocution.")
    return sorted(module.name for module in found if module.name != "elocution.__main__")


@pytest.mark.parametrize("name", public_modules())
def test_all_lists_exactly_the_public_names(name: str) -> None:
    module = importlib.import_module(name)
    defined = {
        key
        for key, value in vars(module).items()
        if not key.startswith("_")
        and getattr(value, "__module__", None) == name
        and not key.isupper()
        and not isinstance(value, TypeVar)
    }
    declared = set(getattr(module, "__all__", ()))
    assert {key for key in declared if not hasattr(module, key)} == set()
    assert defined - declared - {"logger"} == set()


@pytest.mark.parametrize(
    "name",
    ["elocution", "elocution.config.load", "elocution.cli.main", "elocution.rewards.wer_nll", "elocution.report.page"],
)
def test_light_imports_do_not_load_torch(name: str) -> None:
    code = f"import {name}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_line_starts_without_the_packages_that_doctor_tries() -> None:
    heavy = ("numpy", "soundfile", "tomli_w", "scipy", "httpx2")
    code = f"import elocution.cli.main, sys; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by their base names, and two of one name end its collection."""
    names = [path.name for path in Path(__file__).parents[1].rglob("*.py") if path.name != "conftest.py"]
    assert sorted({name for name in names if names.count(name) > 1}) == []
