"""Post-train text-to-speech language models with GRPO."""

__all__ = ["__version__"]

__version__ = "0.1.0"
