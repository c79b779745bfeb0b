"""Engines that load wrongly in ways that servers do, and say that all went well."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from elocution.errors import EngineError
from elocution.policies import load_policy
from elocution.policies.lora import adapter_parameters
from elocution.rollout.sync.base import LoadReport
from elocution.rollout.sync.loaded_engine import LoadedEngine
from elocution.rollout.torch_engine import TorchEngine


class BrokenEngine(LoadedEngine):
    """Starts with the base; from its load number `since` on it does what `fault` says instead of loading.

    It reports neither a count nor a fingerprint, so that only what it computes can give it away.
    """

    def __init__(self, base: Path, fault: str, *, since: int = 0) -> None:
        super().__init__("llasa", precision="fp32", temperature=1.0, batch_size=16)
        self.base, self.fault, self.since = base, fault, since
        self.loads = 0
        self.previous = base
        self._load(base, -1)

    def load_weights(self, directory: Path, version: int) -> LoadReport:
        self.loads += 1
        if self.loads > self.since:
            getattr(self, f"_{self.fault.replace(' ', '_')}")(directory, version)
        else:
            self._load(directory, version)
        self.previous = self._kept(directory)
        return LoadReport()

    load_adapter = load_weights

    def _kept(self, directory: Path) -> Path:
        """A copy that outlives the folder, for the fault that loads it later."""
        if self.fault != "old weights":
            return directory
        copy = directory.parent.parent / f"kept-{self.loads}"
        shutil.copytree(directory, copy)
        return copy

    def _stamp(self, version: int) -> None:
        assert self._policy is not None
        self._engine = TorchEngine(self._policy, temperature=1.0, batch_size=16)
        self._engine.publish(version)

    def _no_op(self, directory: Path, version: int) -> None:
        self._stamp(version)

    def _old_weights(self, directory: Path, version: int) -> None:
        self._load(self.previous, version)

    def _half_the_shards(self, directory: Path, version: int) -> None:
        """The tensors of every other file."""
        files = sorted(directory.glob("*.safetensors"))
        if len(files) == 1:
            self._assign(directory, version, lambda name: ".layers.0" in name or ".layers.3" in name)
        else:
            taken = set().union(*(load_file(file) for file in files[1::2]))
            self._assign(directory, version, lambda name: name in taken)

    def _misnamed_keys(self, directory: Path, version: int) -> None:
        """Names of one layer are not understood, and passed over without a word."""
        self._assign(directory, version, lambda name: ".layers.2." not in name)

    def _binds_nothing(self, directory: Path, version: int) -> None:
        self._assign(directory, version, lambda name: False)

    def _leaves_out_one_layer(self, directory: Path, version: int) -> None:
        self._assign(directory, version, lambda name: ".layers.4.self_attn.k_proj" not in name)

    def _wrong_scale(self, directory: Path, version: int) -> None:
        """Twice the change: an adapter's alpha misread, or merged twice."""
        if (directory / "adapter_config.json").exists():
            copy = directory.parent.parent / f"wrong-{self.loads}"
            shutil.copytree(directory, copy)
            config = json.loads((copy / "adapter_config.json").read_text())
            (copy / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 2 * config["lora_alpha"]}))
            self._load(copy, version)
        else:
            self._load(self.base, version)
            assert self._policy is not None
            base = {name: tensor.clone() for name, tensor in self._policy.model.state_dict().items()}
            self._load(directory, version)
            with torch.no_grad():
                for name, tensor in self._policy.model.state_dict().items():
                    tensor.add_(tensor - base[name])
            self._stamp(version)

    def _crashes_half_way(self, directory: Path, version: int) -> None:
        self._half_the_shards(directory, version)
        raise EngineError("the server died")

    def _not_finite(self, directory: Path, version: int) -> None:
        self._load(directory, version)
        assert self._policy is not None
        with torch.no_grad():
            next(self._policy.model.parameters()).fill_(torch.nan)

    def _assign(self, directory: Path, version: int, is_taken: "Taken") -> None:
        """Loads the base and then, not strictly, those tensors of the version whose names are taken."""
        if (directory / "adapter_config.json").exists():
            self._load(directory, version)
            assert self._policy is not None
            with torch.no_grad():
                for name, parameter in adapter_parameters(self._policy.model).items():
                    if not is_taken(name):
                        parameter.zero_()
        else:
            self._policy = load_policy("llasa", self.base)
            self._policy.model.eval()
            found: dict[str, Tensor] = {}
            for file in directory.glob("*.safetensors"):
                found |= {name: tensor for name, tensor in load_file(file).items() if is_taken(name)}
            self._policy.model.load_state_dict(found, strict=False)
        self._stamp(version)


class Taken:
    """Whether a tensor of that name is loaded."""

    def __call__(self, name: str) -> bool: ...
