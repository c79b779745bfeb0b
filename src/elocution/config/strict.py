"""The base of every section of the configuration tree."""

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

__all__ = ["StrictConfig"]


class StrictConfig(BaseModel):
    """Base of all sections: frozen, no unknown key, no NaN or infinity, no silent conversion of types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, strict=True, use_attribute_docstrings=True
    )

    @field_validator("*")
    @classmethod
    def _refuse_immeasurable(cls, value: Any) -> Any:
        """Tensors are of 32-bit numbers, which end near 1e38 and 1e-38; products of two settings must fit too."""
        for number in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]:
            if isinstance(number, int) and number >= 2**63:
                raise ValueError("must be below 2^63, the end of TOML's integers")
            if isinstance(number, float) and number and not 1e-15 <= abs(number) <= 1e15:
                raise ValueError("must be 0 or between 1e-15 and 1e15 in size")
        return value
