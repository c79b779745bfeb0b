"""What brings Chinese transcripts to simplified script under the rules of seed-tts-eval, by name."""

from collections.abc import Callable
from importlib import import_module

from elocution.errors import MissingDependency
from elocution.text.normalize import simplify

__all__ = ["load_simplifier"]


def load_simplifier(name: str) -> Callable[[str], str]:
    """`opencc`; `zhconv`, which the public scorer uses and whose licence is the GPL; or `none`.

    Raises: MissingDependency if zhconv is asked for and not installed.
    """
    if name == "none":
        return str
    if name == "opencc":
        return simplify
    try:
        convert = import_module("zhconv").convert
    except ImportError as error:
        raise MissingDependency(
            'eval.simplifier = "zhconv" needs the package zhconv (GPL), which elocution does not bring; run: pip install zhconv'
        ) from error
    return lambda text: str(convert(text, "zh-cn"))
