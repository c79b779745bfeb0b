"""Every needed part tried once: packages imported, a sentence spoken and heard.

Run by `elocution doctor` in a process of its own, because a broken package may end the process that imports it.
"""

import importlib
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from elocution.types import Audio

__all__ = ["Finding", "run_probes", "serve_probes"]

Found = TypeVar("Found")

# As docs/engines.md, docs/verl.md, `make test-vllm` and `make test-verl` call them.
_VLLM_PYTHONS = ("vllm-env/bin/python", ".venv-vllm/bin/python")
_VERL_PYTHONS = ("verl-env/bin/python", ".venv-verl/bin/python")
_SENTENCE = "the doctor visited the school"


@dataclass(frozen=True)
class Finding:
    """One line of an examination; `is_needed` and not `is_fine` makes the whole examination fail."""

    subject: str
    is_fine: bool
    is_needed: bool
    detail: str


def run_probes(limit_s: float = 180.0, needed_extra: str = "") -> list[Finding]:
    """Starts the trials and collects what they find; one that crashes or hangs is found by name, and the rest go on.

    `needed_extra` counts as needed, others as optional.
    """
    findings: list[Finding] = []
    while True:
        # -P: a file in the folder where doctor is run must not stand in for a package.
        code = f"from elocution.cli.probes import serve_probes; serve_probes({len(findings)}, {needed_extra!r})"
        command = [sys.executable, "-P", "-W", "ignore", "-c", code]
        try:
            process = subprocess.run(command, capture_output=True, check=False, timeout=limit_s)
            output, ending = process.stdout, _ending(process)
        except subprocess.TimeoutExpired as error:
            output, ending = error.stdout or b"", f"took longer than {limit_s:g} s"
        messages = [json.loads(line) for line in output.decode(errors="replace").splitlines()]
        findings += [Finding(**message) for message in messages if "detail" in message]
        if not ending:
            return findings
        if not messages or "detail" in messages[-1]:
            return [*findings, Finding("trials", False, True, f"the trials {ending}")]
        findings.append(Finding(**messages[-1], is_fine=False, detail=f"broken: its trial {ending}"))


def serve_probes(start: int, needed_extra: str) -> None:
    """Tries every part from number `start` on; prints what it finds, a JSON text a line, and nothing else."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream, open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # what libraries print goes elsewhere

        def tell(**message: Any) -> None:
            stream.write(json.dumps(message) + "\n")
            stream.flush()

        for name, is_needed, probe in _probes(needed_extra)[start:]:
            tell(subject=name, is_needed=is_needed)
            try:
                is_fine, detail = True, probe()
            except _Absent as error:
                is_fine, detail = False, str(error)
            except (Exception, SystemExit) as error:  # a broken package may fail in any way
                is_fine, detail = False, f"broken: {type(error).__name__}: {error}"
            tell(subject=name, is_needed=is_needed, is_fine=is_fine, detail=detail)


class _Absent(Exception):
    """Something is not there, or is too old; the message says what to do."""


def _ending(process: "subprocess.CompletedProcess[bytes]") -> str:
    """How a process ended that should have ended well; empty if it did."""
    if process.returncode == 0:
        return ""
    said = process.stderr.decode(errors="replace").strip().splitlines()
    code = process.returncode
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return f"{how}: {said[-1]}" if said else how


def _probes(needed_extra: str) -> list[tuple[str, bool, Callable[[], str]]]:
    """Name, whether it is needed, and the trial, which gives a detail to print."""
    modules = importlib.metadata.packages_distributions()
    probes: list[tuple[str, bool, Callable[[], str]]] = [
        (one.name, True, partial(_import_package, one, modules)) for one in _requirements()
    ]
    if probes:
        extras = importlib.metadata.metadata("elocution").get_all("Provides-Extra") or []
        if needed_extra and needed_extra not in extras:
            extras.append(needed_extra)
        probes += [(f"extra {extra}", extra == needed_extra, partial(_check_extra, extra)) for extra in extras]
    else:
        probes.append(("elocution", True, _no_metadata))
    probes += [
        ("GPU", False, _find_gpu),
        ("C compiler", False, _compile),
        ("vLLM", False, _find_vllm),
        ("veRL", False, _find_verl),
        ("shipped checkpoint", True, _speak),
    ]
    from elocution.measures import PACKAGED, PHONEME_SCORERS, TRANSCRIBERS

    probes += [(f"recogniser {name}", True, partial(_transcribe, name)) for name in TRANSCRIBERS if name in PACKAGED]
    probes += [(f"phoneme scorer {name}", True, partial(_score, name)) for name in PHONEME_SCORERS if name in PACKAGED]
    return probes


def _requirements(extra: str | None = None) -> "list[Requirement]":
    """What elocution requires here, or what its `extra` and the extras in it add; nothing where its metadata is not installed."""
    from packaging.requirements import Requirement

    try:
        lines = importlib.metadata.requires("elocution") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    wanted = [one for one in map(Requirement, lines) if ("extra ==" in str(one.marker)) == bool(extra)]
    here = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": extra or ""})]
    return [each for one in here for each in (_requirements_of(one.extras) if one.name == "elocution" else [one])]


def _requirements_of(extras: Iterable[str]) -> "list[Requirement]":
    return [one for extra in sorted(extras) for one in _requirements(extra)]


def _check_extra(extra: str) -> str:
    lacking = []
    requirements = _requirements(extra)
    if not requirements:
        raise _Absent(f"the elocution that is installed has no extra {extra}; run: pip install 'elocution[{extra}]'")
    for one in requirements:
        try:
            is_met = one.specifier.contains(importlib.metadata.version(one.name), prereleases=True)
        except importlib.metadata.PackageNotFoundError:
            is_met = False
        if not is_met:
            lacking.append(one.name)
    if lacking:
        raise _Absent(f"lacks {', '.join(lacking)}; run: pip install 'elocution[{extra}]'")
    return "installed"


def _no_metadata() -> str:
    raise _Absent("is not installed as a package, so what it needs is unknown; run: pip install elocution")


def _import_package(requirement: "Requirement", modules: Mapping[str, list[str]]) -> str:
    asked = f"'{requirement.name}{requirement.specifier}'"
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError as error:
        raise _Absent(f"missing; run: pip install {asked}") from error
    if not requirement.specifier.contains(version, prereleases=True):
        raise _Absent(f"{version} is installed, {requirement.specifier} is needed; run: pip install {asked}")
    for module in _modules_of(requirement.name, modules):
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:  # a broken package may fail in any way
            cause = f"{type(error).__name__}: {error}"
            raise _Absent(f"broken: {cause}; run: pip install --force-reinstall {asked}") from error
    return version


def _modules_of(package: str, modules: Mapping[str, list[str]]) -> list[str]:
    """The module that is called like the package, or all of its modules."""
    wanted = _canonical(package)
    own = [module for module, packages in modules.items() if wanted in map(_canonical, packages)]
    named = [module for module in own if _canonical(module) == wanted]
    return named or [module for module in own if not module.startswith("_")]


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _find_gpu() -> str:
    import torch

    if not torch.cuda.is_available():
        raise _Absent("none that torch can use; the tiny recipe runs on the CPU")
    return ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))


def _compile() -> str:
    from elocution.errors import EngineError
    from elocution.policies.compiled_kernels import CompiledKernels

    try:
        CompiledKernels(1, 1, 8, 1e-6)
    except EngineError as error:
        raise _Absent(f"{error}; without one (gcc, clang) completions take longer to draw on a CPU") from error
    return "compiles the kernels of rollout.compile"


def _find_vllm() -> str:
    """A run names its own with `rollout.server.python`."""
    from elocution.rollout.vllm_launch import INSTALL, find_vllm

    python, found = _find_beside(_VLLM_PYTHONS, find_vllm, f'rollout.engine = "vllm" alone; run: {INSTALL}')
    return f"{found}, rollout.server.python = {python!r}"


def _find_verl() -> str:
    """A config names its own with `verl.python`."""
    from elocution.verl.environment import INSTALL, find_verl

    python, found = _find_beside(_VERL_PYTHONS, find_verl, f"`elocution verl` alone; run: {INSTALL}")
    return f"verl {found.version}, {found.gpus} GPUs, verl.python = {python!r}"


def _find_beside(pythons: Sequence[str], find: Callable[[str], Found], needed_by: str) -> tuple[str, Found]:
    """The first Python that has what `find` looks for, empty for this one, and what was found: here, then where one is likely."""
    from elocution.errors import MissingDependency

    beside = [path for path in pythons if Path(path).is_file()]
    for python in ("", *beside):
        try:
            return python, find(python)
        except MissingDependency:
            continue
    raise _Absent(f"not found {' nor in '.join(['in this environment', *beside])}; needed by {needed_by}")


@cache
def _speech() -> "Audio":
    """What the shipped checkpoint and codec make of the sentence."""
    from elocution.generate import speak

    with TemporaryDirectory() as folder:
        return speak(
            _SENTENCE,
            Path(folder) / "said.wav",
            model="builtin:tiny-llasa",
            family="llasa",
            codec="tiny",
            codec_path="builtin:tiny-codec",
            language="en",
            temperature=0.3,
            seed=0,
        )


def _speak() -> str:
    return f"speaks {_SENTENCE!r} in {_speech().duration_s:.1f} s of sound"


def _sound() -> "Audio":
    """The sentence, if this process has spoken it; else a second of noise."""
    if _speech.cache_info().currsize:
        return _speech()
    import numpy as np

    from elocution.types import Audio

    noise = np.random.default_rng(0).standard_normal(16_000)
    return Audio((0.1 * noise).astype(np.float32), 16_000)


def _transcribe(name: str) -> str:
    from elocution.measures import load_transcriber

    return f"hears {load_transcriber(name).transcribe(_sound())!r}"


def _score(name: str) -> str:
    from elocution.measures import load_phoneme_scorer

    return f"{load_phoneme_scorer(name).score(_sound(), _SENTENCE).nll:.2f} nats for each phoneme"
