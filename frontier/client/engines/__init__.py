"""The table of engines, by the names of their dialects: each is a file of this folder, and one line
here.

Where several could answer alike, as on /server_info, the one that is listed first is tried first.
"""

from collections.abc import Mapping

from frontier.client.engines import llamacpp, ollama, openai, sglang, tgi, trtllm, vllm
from frontier.client.engines.base import Engine

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        openai.ENGINE,
        openai.REASONING_MODELS,
        vllm.ENGINE,
        trtllm.ENGINE,
        sglang.ENGINE,
        tgi.ENGINE,
        llamacpp.ENGINE,
        ollama.ENGINE,
    )
}
