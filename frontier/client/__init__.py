"""The client: one trial over HTTP, by `run_trial`, which is imported when first used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frontier.client.load.trial import run_trial

__all__ = ["run_trial"]


def __getattr__(name: str) -> Any:
    if name != "run_trial":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from frontier.client.load.trial import run_trial

    return run_trial
