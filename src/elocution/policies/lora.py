"""Low-rank adapters (LoRA) inside a policy's model, whose class, forward and frozen weights stay as they are.

Knows no model family and no optimiser. Source: LoRA, arXiv:2106.09685; the layers and the files are peft's.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import Linear as LoraLinear
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from elocution.assets import resolve_path
from elocution.config.tree import LoraSettings
from elocution.errors import CheckpointError, ConfigError
from elocution.files import apply_umask
from elocution.policies.base import Policy, PolicyBatch, require_states
from elocution.policies.states import States
from elocution.policies.weights import check_values

__all__ = [
    "AdapterBase",
    "BasePolicy",
    "HasAdapterRoot",
    "LoraSettings",
    "adapted_weights",
    "adapter_disabled",
    "adapter_parameters",
    "adapter_tensors",
    "add_adapter",
    "describe_base",
    "has_adapter",
    "is_adapter",
    "load_adapter",
    "merged_names",
    "merged_state_dict",
    "merged_weight",
    "read_base",
    "recorded_base",
    "save_adapter",
]

# What peft calls an adapter that has no name of its own, and how it begins the names of an adapter's tensors in a file.
_NAME = "default"
_PREFIX = "base_model.model."
_MAX_RANK = 1024
_CONFIG, _WEIGHTS, _BASE = "adapter_config.json", "adapter_model.safetensors", "base.json"
# The files of a base checkpoint that decide what it computes; a README may change.
_BASE_SUFFIXES = {".safetensors", ".bin", ".json", ".jinja", ".model"}


@dataclass(frozen=True)
class AdapterBase:
    """The checkpoint that an adapter belongs to: its path as a config writes it, and the digest of its files."""

    path: str
    sha256: str


@runtime_checkable
class HasAdapterRoot(Protocol):
    """A model whose published adapters belong to one of its parts, and name layers as that part does."""

    adapter_root: str
    """Name of the part."""


class BasePolicy:
    """The policy with its adapter off: the frozen model that KL is measured against, without a second copy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def logprobs(self, batch: PolicyBatch, *, temperature: float) -> tuple[Tensor, Tensor]:
        """As the policy's own, of the base model."""
        with adapter_disabled(self.policy.model):
            return self.policy.logprobs(batch, temperature=temperature)

    def states(self, batch: PolicyBatch) -> States:
        """As the policy's own, of the base model.

        Raises: ConfigError if the policy gives none.
        """
        with adapter_disabled(self.policy.model):
            return require_states(self.policy).states(batch)


def add_adapter(
    model: nn.Module, settings: LoraSettings, *, targets: Sequence[str], seed: int, base_path: str = ""
) -> None:
    """Puts an adapter into `model` in place and freezes all other parameters; the outputs stay the same to the bit.

    A is drawn from `seed`, B is 0. `targets` are the patterns of the layers that may have an adapter;
    `settings.target_modules` chooses among them. `base_path` is what the adapter's file will name as its base.

    Raises: ConfigError if the model has an adapter already, or a pattern fits no layer that may have one.
    """
    if has_adapter(model):
        raise ConfigError("the model has an adapter already; merge it into its weights first")
    root, _ = _root_of(model)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]  # only ever divided by the rank
        lora_dropout=settings.dropout,
        target_modules=[name.removeprefix(root) for name in _choose(model, settings.target_modules, targets)],
        base_model_name_or_path=base_path,
    )
    _inject(model, config, seed)


def has_adapter(model: nn.Module) -> bool:
    """Whether some layer of the model has an adapter."""
    return bool(_adapted_layers(model))


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The adapter's parameters by their names in the model, `LAYER.lora_A.default.weight` and `…lora_B…`."""
    return {
        f"{layer_name}.{name}": parameter
        for layer_name, layer in _adapted_layers(model).items()
        for name, parameter in layer.named_parameters()
        if not name.startswith("base_layer.")
    }


@contextmanager
def adapter_disabled(model: nn.Module) -> Iterator[None]:
    """Within, the model computes what its base computes, to the bit; not for use in two threads at once."""
    layers = _adapted_layers(model).values()
    # Switching an adapter off and on makes peft forget which of its parameters were frozen.
    required = [(parameter, parameter.requires_grad) for parameter in adapter_parameters(model).values()]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)
        for parameter, is_trained in required:
            parameter.requires_grad_(is_trained)


def merged_weight(layer: nn.Module) -> Tensor:
    """The weight by which a linear layer multiplies, W + (alpha / rank) B A with an adapter, else its own W.

    Detached, in the precision of W; a copy only if the layer has an adapter that is on. Shapes: [out, in].
    """
    if not isinstance(layer, LoraLinear):
        plain: Tensor = layer.weight  # type: ignore[assignment]
        return plain.detach()
    weight: Any = layer.get_base_layer().weight
    if layer.disable_adapters:
        base: Tensor = weight.detach()
        return base
    merged: Tensor = weight.detach() + layer.get_delta_weight(_NAME).detach()
    return merged.to(weight.dtype)


def merged_state_dict(model: nn.Module, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """The state of the model with its adapter folded in, under the names of the base; without one, its own state.

    With `names`, only the tensors that have these names in the base; the others are not computed.
    """
    layers = _adapted_layers(model)
    state = model.state_dict()
    merged = {}
    for base_name, name in _base_names(model).items():
        if names is not None and base_name not in names:
            continue
        layer_name, _, rest = name.partition(".base_layer.")
        merged[base_name] = merged_weight(layers[layer_name]) if rest == "weight" else state[name]
    return merged


def merged_names(model: nn.Module) -> list[str]:
    """The names in `merged_state_dict`, without computing it."""
    return list(_base_names(model))


def adapted_weights(model: nn.Module) -> list[str]:
    """The names in the base of the weights that the adapter changes; one for each adapted layer."""
    return [f"{name}.weight" for name in _adapted_layers(model)]


def adapter_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The adapter's tensors, detached, by their names in peft's file."""
    return {name: parameter.detach() for name, parameter in _by_file_name(model).items()}


def save_adapter(model: nn.Module, path: str, *, base: AdapterBase) -> None:
    """Writes the adapter into the folder `path` as peft does, and beside it, in `base.json`, what it belongs to."""
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    part: Any = _root_of(model)[1]
    config = part.peft_config[_NAME]
    described = {
        key: sorted(value) if isinstance(value, set) else value
        for key, value in config.to_dict().items()
        if key != "inference_mode"
    }
    # peft leaves the parameters of an adapter that it opens frozen if the file says so.
    (folder / _CONFIG).write_text(json.dumps(described | {"inference_mode": True}, indent=2, sort_keys=True) + "\n")
    save_file(adapter_tensors(model), folder / _WEIGHTS, metadata={"format": "pt"})
    apply_umask(folder / _WEIGHTS)
    (folder / _BASE).write_text(json.dumps(asdict(base), indent=2) + "\n", encoding="utf-8")


def load_adapter(model: nn.Module, path: Path) -> None:
    """Puts the adapter in the folder `path` into `model`, which must be its base.

    Raises: CheckpointError if a file is missing or damaged, the tensors do not fit, or the adapter is more than pairs
    of A and B without dropout.
    """
    try:
        config = LoraConfig(**_understood(json.loads((path / _CONFIG).read_text(encoding="utf-8"))))
        tensors = load_file(path / _WEIGHTS)
        if config.lora_dropout:
            raise ValueError(f"lora_dropout is {config.lora_dropout}, must be 0")
        config.inference_mode = False
        config.init_lora_weights = True  # some ways to start an adapter would change the base again
        _inject(model, config, seed=0)
    except Exception as error:  # a damaged or odd file may end in any error of the libraries that read it
        raise CheckpointError(f"cannot load the adapter {path}: {type(error).__name__}: {error}") from error
    check_values(path, tensors.items(), may_be_zero=True)  # B is, before its first update
    expected = _by_file_name(model)
    wrong = sorted(
        (expected.keys() ^ tensors.keys())
        | {name for name in expected.keys() & tensors.keys() if expected[name].shape != tensors[name].shape}
    )
    if wrong:
        raise CheckpointError(f"the adapter {path} does not fit the model: {', '.join(wrong[:5])}")
    with torch.no_grad():
        for name, parameter in expected.items():
            parameter.copy_(tensors[name])


def is_adapter(path: Path) -> bool:
    """Whether the folder holds an adapter and not a whole checkpoint."""
    return (path / _CONFIG).is_file()


def describe_base(path: str) -> AdapterBase:
    """What an adapter must remember of the checkpoint at `path`, a folder or `builtin:NAME`; reads all its weights."""
    digest = hashlib.sha256()
    for file in sorted(resolve_path(path).iterdir()):
        if file.suffix in _BASE_SUFFIXES and file.is_file():
            with file.open("rb") as stream:
                digest.update(f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {file.name}\n".encode())
    return AdapterBase(path, digest.hexdigest())


def recorded_base(adapter: Path) -> AdapterBase:
    """What the adapter in the folder `adapter` remembers of its base, which is not looked at.

    Raises: CheckpointError if the record is missing or damaged.
    """
    record = adapter / _BASE
    try:
        written = json.loads(record.read_text(encoding="utf-8"))
        return AdapterBase(str(written["path"]), str(written["sha256"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"cannot tell the base of the adapter {adapter}: {record.name}: {error}") from error


def read_base(adapter: Path) -> AdapterBase:
    """The base of the adapter in the folder `adapter`, found and unchanged; reads all its weights.

    Raises: CheckpointError if it is not where it was, or its files are not those that the adapter was trained beside.
    """
    base = recorded_base(adapter)
    if not (resolve_path(base.path) / "config.json").is_file():
        raise CheckpointError(
            f"the adapter {adapter} belongs to the checkpoint {base.path}, which is not there; "
            f"put it back, or write its new place into {adapter / _BASE}"
        )
    found = describe_base(base.path)
    if found != base:
        raise CheckpointError(
            f"the adapter {adapter} belongs to a checkpoint that was at {base.path} with digest {base.sha256[:12]}…; "
            f"what is there now has {found.sha256[:12]}…"
        )
    return base


def _adapted_layers(model: nn.Module) -> dict[str, LoraLinear]:
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLinear)}


def _base_names(model: nn.Module) -> dict[str, str]:
    """Names in the base -> names in the model's state, the adapter's own tensors left out."""
    adapter = adapter_parameters(model)
    return {name.replace(".base_layer.", "."): name for name in model.state_dict() if name not in adapter}


def _choose(model: nn.Module, patterns: Sequence[str], allowed: Sequence[str]) -> list[str]:
    """Full names of the layers that fit; a pattern may describe a whole name or its last part."""

    def fits(name: str, pattern: str) -> bool:
        return fnmatchcase(name, pattern) or fnmatchcase(name.rpartition(".")[2], pattern)

    linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    adaptable = [name for name in linears if any(fits(name, pattern) for pattern in allowed)]
    for pattern in patterns or allowed:
        if not any(fits(name, pattern) for name in adaptable):
            last_parts = dict.fromkeys(name.rpartition(".")[2] for name in adaptable)
            raise ConfigError(
                f"model.lora.target_modules = {pattern!r} fits no layer that may have an adapter; "
                f"there are {', '.join(last_parts) or 'none in this model family'}"
            )
    return [name for name in adaptable if any(fits(name, pattern) for pattern in patterns or allowed)]


def _inject(model: nn.Module, config: LoraConfig, seed: int) -> None:
    with torch.random.fork_rng(devices=[]):  # peft draws A on the CPU
        torch.default_generator.manual_seed(seed)
        if not isinstance(model, HasAdapterRoot):
            inject_adapter_in_model(config, model)
            return
        # peft freezes all that is not the adapter, but only in the part that it is given.
        model.requires_grad_(False)
        inject_adapter_in_model(config, _root_of(model)[1])


def _root_of(model: nn.Module) -> tuple[str, nn.Module]:
    """The part that adapters belong to, and what the names of its layers begin with in the whole model."""
    if isinstance(model, HasAdapterRoot):
        return f"{model.adapter_root}.", model.get_submodule(model.adapter_root)
    return "", model


def _by_file_name(model: nn.Module) -> dict[str, nn.Parameter]:
    root, _ = _root_of(model)
    return {
        _PREFIX + name.removeprefix(root).replace(f".{_NAME}.", "."): parameter
        for name, parameter in adapter_parameters(model).items()
    }


def _understood(written: Any) -> dict[str, Any]:
    """The settings in an adapter's file that this version of peft knows; those that it does not must be off."""
    if not isinstance(written, dict):
        raise ValueError(f"{_CONFIG} must hold a JSON object, found {type(written).__name__}")
    if written.get("peft_type") != "LORA":
        raise ValueError(f"peft_type is {written.get('peft_type')!r}, must be 'LORA'")
    for rank in (written.get("r"), *dict(written.get("rank_pattern") or {}).values()):
        if type(rank) is not int or not 1 <= rank <= _MAX_RANK:
            raise ValueError(f"{_CONFIG}: a rank is {rank!r:.80}, must be a number from 1 to {_MAX_RANK}")
    unknown = written.keys() - LoraConfig.__dataclass_fields__.keys()
    if used := sorted(key for key in unknown if written[key]):
        raise ValueError(f"settings that the installed peft does not know: {', '.join(used)}")
    return {key: value for key, value in written.items() if key not in unknown}
