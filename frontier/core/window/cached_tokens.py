"""Cached tokens of prompts, as far as they say that a prompt was known before."""

import math
from collections.abc import Mapping

import numpy as np

from frontier.core.model.trials import CACHED_ANEW, SHARE_ANEW
from frontier.core.window.window import Floats

CACHED_MORE = 0.02
"""The margin by which a window has clearly more cached tokens than new prompts: this share of all
prompt tokens, and of the share cached of new prompts."""


def beyond_template(columns: Mapping[str, Floats], server: Mapping[str, float]) -> Floats:
    """The prompt tokens from the cache beyond the template, which is known to later turns. NaN
    where the server calls a share of new prompts cached, and here not a clearly higher share.
    """
    cached, prompts = columns["cached_tokens"], columns["prompt_tokens"]
    if (share := server.get(SHARE_ANEW)) is not None:
        higher = np.nansum(cached) > (share + CACHED_MORE * (1 + share)) * np.nansum(prompts[~np.isnan(cached)])
        return cached if higher else np.full(len(cached), math.nan)
    return np.maximum(cached - np.where(columns["turn"] > 0, 0.0, server.get(CACHED_ANEW, 0.0)), 0.0)
