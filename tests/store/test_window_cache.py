import dataclasses
import hashlib
import math

import numpy as np
import pytest

from frontier.core.model.shapes import Lengths, Shape
from frontier.core.model.trials import ClientHealth
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import BLOCKS, WindowData
from frontier.store.window_cache import VERSION, pack, unpack


@pytest.fixture
def sample() -> WindowData:
    n = 5
    values = {f.name: np.linspace(0.1, 0.9, n) for f in dataclasses.fields(WindowData)}
    blocks = {name: np.arange(BLOCKS, dtype=np.float64) for name in values if name.startswith("block_")}
    return WindowData(
        **values
        | blocks
        | {
            "deployment": "d",
            "shape": Shape(Lengths.normal(512, 40), Lengths.fixed(64)),
            "load": 4,
            "starts": np.array([1.0]),
            "ends": np.array([9.0]),
            "window": np.zeros(n, np.int64),
            "ttft": np.array([0.1, math.inf, math.nan, 0.2, 0.3]),
            "ok": np.array([True, False, True, True, True]),
            "hollow": np.zeros(n, dtype=bool),
            "odd_finishes": {"content_filter": 1},
            "events": np.arange(n),
            "reads": np.arange(n),
            "text_chars": np.arange(n),
            "in_flight": np.full(BLOCKS, 4.0),
            "block_itl": (
                LogHistogram.of([0.01, 0.02, 0.0]),
                LogHistogram(),
                *(LogHistogram.of([0.5]),) * (BLOCKS - 2),
            ),
            "health": (ClientHealth(),),
            "server_identities": (None,),
            "server": ({"hits": 2.0},),
            "ended": ("requests",),
            "client_failures": 0,
            "outcomes": {"ok": 4, "timeout": 1},
            "whole_run": {"p99_ttft": math.inf},
            "open_loop": False,
            "power_rule": None,
        }
    )


def test_a_sample_comes_back_as_it_was(sample: WindowData) -> None:
    found = unpack(pack(sample, "these"), "these")
    assert found is not None
    for field in dataclasses.fields(WindowData):
        was, now = getattr(sample, field.name), getattr(found, field.name)
        if isinstance(was, np.ndarray):
            assert was.dtype == now.dtype
            np.testing.assert_array_equal(was, now)
        elif field.name == "block_itl":
            assert [(h, h.total) for h in was] == [(h, h.total) for h in now]
        else:
            assert was == now, field.name


def test_damage_other_data_and_foreign_types_are_no_sample(sample: WindowData) -> None:
    data = pack(sample, "these")
    assert unpack(data, "those") is None
    for at in (0, 40, len(data) // 2, len(data) - 1):
        assert unpack(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "these") is None
    assert unpack(data[:-8], "these") is None

    def forged(old: bytes, new: bytes) -> bytes:
        body = data[32:].replace(old, new, 1)
        return hashlib.sha256(body).digest() + body

    assert unpack(forged(b"", b""), "these") is not None
    assert unpack(forged(b'"<f8"', b'"|O8"'), "these") is None
    assert unpack(forged(b'"version": %d' % VERSION, b'"version": 0'), "these") is None
    assert unpack(forged(b'"<f8", 5', b'"<f8",-5'), "these") is None
    assert unpack(forged(b'"<f8", 5', b'"<f8",99'), "these") is None
