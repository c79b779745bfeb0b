"""Writes what SGLang's server reads and answers to tests/data/oracles/sglang_fields.json, from its wheel's source alone.

Usage: pip download --no-deps sglang==0.5.23 --dest build; python scripts/write_sglang_fields.py build/sglang-*.whl
Nothing of the wheel is imported, for that would need its CUDA packages.
"""

import ast
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

OUTPUT = Path(__file__).parent.parent / "tests" / "data" / "oracles" / "sglang_fields.json"
IO_STRUCT = "sglang/srt/managers/io_struct.py"
HTTP_SERVER = "sglang/srt/entrypoints/http_server.py"
TOKENIZER_MANAGER = "sglang/srt/managers/tokenizer_manager.py"
API_TYPES = "sglang/api/v1/api_types.py"
# What a class declares, annotated fields of its own and of the bases that stand in the same file.
CLASSES = (
    ("sglang/srt/sampling/sampling_params.py", "SamplingParams"),
    (IO_STRUCT, "GenerateReqInput"),
    (IO_STRUCT, "UpdateWeightFromDiskReqInput"),
    (IO_STRUCT, "UpdateWeightVersionReqInput"),
    (IO_STRUCT, "InitWeightsUpdateGroupReqInput"),
    (IO_STRUCT, "DestroyWeightsUpdateGroupReqInput"),
    (IO_STRUCT, "BeginWeightUpdateReqInput"),
    (IO_STRUCT, "EndWeightUpdateReqInput"),
    (IO_STRUCT, "UpdateWeightsFromDistributedReqInput"),
    (IO_STRUCT, "LoadLoRAAdapterReqInput"),
    (IO_STRUCT, "UnloadLoRAAdapterReqInput"),
    (IO_STRUCT, "LoRAUpdateOutput"),
    (IO_STRUCT, "PauseGenerationReqInput"),
    (IO_STRUCT, "ContinueGenerationReqInput"),
    (IO_STRUCT, "AbortReq"),
    ("sglang/srt/utils/weight_versions.py", "WeightVersionSpan"),
    ("sglang/srt/arg_groups/fields/parallel.py", "Parallel"),
    (API_TYPES, "GenerateRequest"),
    (API_TYPES, "SamplingParams"),
)
# What a function writes: keys of dict literals and of subscript assignments.
FUNCTIONS = (
    (TOKENIZER_MANAGER, "TokenizerManager._handle_batch_output"),
    (TOKENIZER_MANAGER, "TokenizerManager.add_logprob_to_meta_info"),
    ("sglang/srt/utils/weight_versions.py", "add_weight_versions_to_meta_info"),
    ("sglang/srt/managers/schedule_batch.py", "FINISH_MATCHED_TOKEN.to_json"),
    ("sglang/srt/managers/schedule_batch.py", "FINISH_LENGTH.to_json"),
    ("sglang/srt/managers/schedule_batch.py", "FINISH_ABORT.to_json"),
    (HTTP_SERVER, "model_info"),
    (HTTP_SERVER, "update_weights_from_disk"),
    (HTTP_SERVER, "update_weight_version"),
    (HTTP_SERVER, "init_weights_update_group"),
    (HTTP_SERVER, "update_weights_from_distributed"),
    (HTTP_SERVER, "end_weight_update"),
    (HTTP_SERVER, "_create_error_response"),
)


def class_fields(tree: ast.Module, name: str) -> list[str]:
    """Annotated names of the class `name` and of its bases in `tree`."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found: list[str] = []
    for base in classes[name].bases:
        if isinstance(base, ast.Name) and base.id in classes:
            found += class_fields(tree, base.id)
    body = classes[name].body
    return found + [n.target.id for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]


def find_function(tree: ast.Module, path: str) -> ast.AST:
    """The function `name` or `Class.name`."""
    node: ast.AST = tree
    for name in path.split("."):
        node = next(child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == name)
    return node


def written_keys(function: ast.AST) -> list[str]:
    """String keys of the dicts that `function` builds, sorted."""
    keys = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            keys |= {key.value for key in node.keys if isinstance(key, ast.Constant)}
        elif isinstance(node, ast.Assign):
            keys |= {
                target.slice.value
                for target in node.targets
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant)
            }
    return sorted(key for key in keys if isinstance(key, str))


def endpoints(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Path and methods of each route that is written as a constant."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        path = node.args[0]
        if node.func.attr not in ("get", "post", "api_route") or not isinstance(path, ast.Constant):
            continue
        if not isinstance(path.value, str) or not path.value.startswith("/"):
            continue
        methods = [node.func.attr.upper()]
        for keyword in node.keywords:
            if keyword.arg == "methods":
                methods = ast.literal_eval(keyword.value)
        yield path.value, sorted(methods)


def main() -> None:
    wheel = Path(sys.argv[1])
    with zipfile.ZipFile(wheel) as archive:
        names = {path for path, _ in (*CLASSES, *FUNCTIONS)} | {HTTP_SERVER}
        trees = {name: ast.parse(archive.read(name)) for name in names}
    content = {
        "sglang": wheel.name.split("-")[1],
        "classes": {f"{path}:{name}": class_fields(trees[path], name) for path, name in CLASSES},
        "functions": {f"{path}:{name}": written_keys(find_function(trees[path], name)) for path, name in FUNCTIONS},
        "endpoints": dict(sorted(endpoints(trees[HTTP_SERVER]))),
    }
    OUTPUT.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
