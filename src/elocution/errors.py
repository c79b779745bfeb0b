"""Every error that elocution raises on purpose, so that a caller can catch a kind and not a message.

ElocutionError
├── ConfigError (ValueError)      a config file, key or value cannot be used
├── DataError (ValueError)        a prompt file, row or text cannot be used
│   └── Unverbalizable            a text has no reading: nothing to speak, or a symbol without a name
├── CodecError                    codes or a codec checkpoint cannot be decoded or loaded
├── EngineError                   rollouts could not be generated
│   ├── EngineUnavailable         a server does not answer, or not in time: trying again may help
│   ├── RatioMismatch             sampling and training log-probs disagree where they must not
│   └── SyncError                 an engine is not proven to have the weights that it was given
├── RewardError                   scores could not be had
│   └── RewardUnavailable         a scorer is down: not the policy's fault, never a number
├── ProtocolError                 a message between client and server cannot be read
├── ServerError                   a server cannot start
├── CheckpointError               a checkpoint is missing, truncated, or of another run
├── ExportError                   a model cannot be exported, or what was written is another
├── RunDirectoryError             a run directory is in use, or holds what it should not
├── EvaluationError               an evaluation is not whole, or cannot be compared with another
├── StorageError                  a file cannot be written: no space, no permission
├── NonFiniteError                a loss or gradient is not finite; nothing was updated
├── DeadParameterError            parameters that should be trained get no gradient
├── MemoryExhausted               an update does not fit in memory
├── WorldError                    the processes of a run are not those asked for, or one is gone
└── MissingDependency             an optional package is absent; names the extra that brings it
"""

__all__ = [
    "CheckpointError",
    "CodecError",
    "ConfigError",
    "DataError",
    "DeadParameterError",
    "ElocutionError",
    "EngineError",
    "EngineUnavailable",
    "EvaluationError",
    "ExportError",
    "MemoryExhausted",
    "MissingDependency",
    "NonFiniteError",
    "ProtocolError",
    "RatioMismatch",
    "RewardError",
    "RewardUnavailable",
    "RunDirectoryError",
    "ServerError",
    "StorageError",
    "SyncError",
    "Unverbalizable",
    "WorldError",
]


class ElocutionError(Exception):
    """Base of all errors raised on purpose; its message is fit to print to a user."""


class ConfigError(ElocutionError, ValueError):
    """A config file, key or value cannot be used."""


class DataError(ElocutionError, ValueError):
    """A prompt file, row or text cannot be used."""


class Unverbalizable(DataError):
    """A text has no reading: there is nothing to speak in it, or a symbol that no rule names."""


class CodecError(ElocutionError):
    """Codes or a codec checkpoint cannot be decoded or loaded."""


class EngineError(ElocutionError):
    """Rollouts could not be generated."""


class EngineUnavailable(EngineError):
    """An engine's server cannot be reached, fails, or answers late; trying again may help."""


class RatioMismatch(EngineError):
    """Sampling and training log-probs disagree although the weights are the same."""


class SyncError(EngineError):
    """An engine is not proven to have the weights that it was given; it must not draw."""


class RewardError(ElocutionError):
    """Scores could not be had."""


class RewardUnavailable(RewardError):
    """A scorer is down: not the policy's fault, and never a number."""


class ProtocolError(ElocutionError):
    """A message between client and server cannot be read."""


class ServerError(ElocutionError):
    """A server cannot start."""


class CheckpointError(ElocutionError):
    """A checkpoint is missing, truncated, or belongs to another run."""


class ExportError(ElocutionError):
    """A model cannot be exported, or what was written is not what was trained."""


class RunDirectoryError(ElocutionError):
    """A run directory is in use, or holds what it should not."""


class EvaluationError(ElocutionError):
    """An evaluation is not whole, or cannot be compared with another."""


class StorageError(ElocutionError):
    """A file cannot be written: no space, no permission."""


class NonFiniteError(ElocutionError):
    """A loss or gradient is not finite; nothing was updated."""


class DeadParameterError(ElocutionError):
    """Parameters that should be trained get no gradient."""


class MemoryExhausted(ElocutionError):
    """An update does not fit in memory."""


class WorldError(ElocutionError):
    """The processes of a run are not those that were asked for, or one of them is gone."""


class MissingDependency(ElocutionError):
    """An optional package is absent.

    `MissingDependency.naming(package, extra)` builds the usual message.
    """

    @classmethod
    def naming(cls, package: str, extra: str) -> "MissingDependency":
        """The error for `package`, which the optional dependency set `extra` installs."""
        return cls(f"the package {package!r} is not installed; run: pip install 'elocution[{extra}]'")
