"""Our in-process engine against a vLLM server: tokens drawn for each second of CPU, on the same prompts.

`python benchmarks/engines.py PYTHON_WITH_VLLM`. CPU time is that of all processes taking part, so that other work on the
machine counts little; each engine has one thread for its products. Log-probs, legal ids and budgets are a training run's.
Measured at two sizes: the tiny checkpoint, and random weights of 26 M parameters behind the same tokenizer.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil
import torch
from measuring import describe_machine
from transformers import LlamaConfig, LlamaForCausalLM

from elocution.assets import resolve_path
from elocution.config.load import load_config
from elocution.config.tree import ServerConfig, SyncSettings
from elocution.data.prompts import load_prompts
from elocution.policies.llasa import LlasaPolicy
from elocution.rollout.base import RolloutEngine, RolloutRequest
from elocution.rollout.launch import LaunchedServer
from elocution.rollout.speak import token_budget
from elocution.rollout.sync.build import build_synced_engine
from elocution.rollout.torch_engine import TorchEngine
from elocution.rollout.vllm import VllmEngine
from elocution.rollout.vllm_launch import vllm_launch
from elocution.rollout.vllm_servers import VllmServers

PROMPTS, GROUP, REPEATS = 16, 8, 3
ON_ONE_THREAD = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


def cpu_seconds() -> float:
    """What this process and all that it started have used so far."""
    me = psutil.Process()
    spent = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum((times.user + times.system for times in spent), start=0.0)


def report(name: str, engine: RolloutEngine, ask: Callable[[int], list[RolloutRequest]]) -> None:
    """Prints the best of `REPEATS` batches, after one that is not counted."""
    rates = []
    for repeat in range(REPEATS + 1):
        spent, started = cpu_seconds(), time.perf_counter()
        tokens = sum(len(completion.ids) for _, _, completion in engine.stream(ask(repeat)))
        rates.append((tokens / (cpu_seconds() - spent), tokens / (time.perf_counter() - started), tokens))
    best = max(rates[1:])
    print(f"  {name:<24} {best[0]:8.0f} tokens/CPU-s {best[1]:8.0f} tokens/s   ({best[2]} tokens)", flush=True)


def write_larger(folder: Path) -> str:
    """A checkpoint of 26 M parameters, 8 layers of width 512, in `folder`; its completions end at their budgets."""
    tiny = LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
    sizes = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "head_dim": 64}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2}
    torch.manual_seed(0)
    llama = LlamaForCausalLM(LlamaConfig(**{**tiny.llama.config.to_dict(), **sizes, **heads}))
    LlasaPolicy(llama, tiny.tokenizer).save_pretrained(str(folder))
    return str(folder)


def compare(python: str, base: str, root: Path) -> None:
    """Prints the rates of all engines on the checkpoint `base`."""
    policy = LlasaPolicy.from_pretrained(resolve_path(base))
    policy.model.eval()
    utterances = load_prompts(
        resolve_path("builtin:tiny-train"), languages=["en"], on_bad_row="stop", check_text=policy.check_text
    ).utterances[:PROMPTS]
    config = load_config(None).rollout

    def ask(repeat: int) -> list[RolloutRequest]:
        return [
            RolloutRequest(
                policy.prompt_ids(utterance),
                tuple((repeat, index, sibling) for sibling in range(GROUP)),
                token_budget(utterance.text, max_codes_per_char=config.max_codes_per_char, min_codes=config.min_codes),
            )
            for index, utterance in enumerate(utterances)
        ]

    millions = sum(parameter.numel() for parameter in policy.model.parameters()) / 1e6
    print(f"{millions:.1f} M parameters, {PROMPTS} prompts x {GROUP} completions, best of {REPEATS}")
    torch_engine = TorchEngine(policy, temperature=1.0, batch_size=PROMPTS * GROUP)
    torch_engine.publish(0)
    report("elocution (torch)", torch_engine, ask)
    for name, flags in (("vLLM, eager", ("--enforce-eager",)), ("vLLM, compiled", ())):
        settings = ServerConfig(python=python, flags=flags, env=ON_ONE_THREAD)
        launch = vllm_launch(settings, model_path=resolve_path(base), precision="fp32", lora_rank=0, on_cpu=True)
        with LaunchedServer(launch, root / "server.log") as server:
            servers = VllmServers([server], vocab_size=policy.llama.config.vocab_size)
            servers.start()
            engine = build_synced_engine(
                VllmEngine(policy, servers, temperature=1.0),
                policy,
                SyncSettings(),
                base=base,
                precision="fp32",
                trained=dict(policy.model.named_parameters()),
                utterances=utterances,
                root=root / f"sync-{len(flags)}",
                seed=0,
                untie=True,
            )
            engine.publish(0)
            report(name, engine, ask)


def main(python: str) -> None:
    print(describe_machine("transformers"))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for size, base in (("tiny", "builtin:tiny-llasa"), ("larger", write_larger(root / "model"))):
            (root / size).mkdir()
            compare(python, base, root / size)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
