"""One thread at a time makes models of transformers.

While it loads a model, transformers swaps functions of its classes, such as `PreTrainedModel.tie_weights`, and puts back what
it found. When two threads load at once, one may find the other's swap and put that back for good: every model made later
in the process then has an untied head.
"""

from threading import RLock

__all__ = ["LOADING"]

LOADING = RLock()
