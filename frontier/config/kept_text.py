"""The text of a config that a run keeps. A secret in a comment is masked. A secret in a value is
refused, because a run with a masked value would be another sweep.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from frontier.client.secrets import Secrets
from frontier.config.complaints import ConfigError
from frontier.config.load import Setting, composed, config_text, without_secrets
from frontier.config.yaml_source import fill

_HINT = "name its variable: api_key_env: NAME; in a header ${NAME}; in a command $NAME"


def kept_text(text: str, file: str, settings: Sequence[Setting], secrets: Secrets) -> str:
    """The text that a run keeps of a sound config with these settings. ConfigError where a value
    holds one of the secrets.
    """
    root, doc = composed(text, file, settings)
    fill(doc, root)
    complaints = [
        doc.complaint(path, f"{path[0]} holds the value of a secret, and a run keeps its config", _HINT)
        for path in doc.nodes
        if path and (secrets.held(doc.text(path)) or secrets.held(str(path[-1])))
    ]
    if complaints:
        raise ConfigError(file, without_secrets(complaints, secrets))
    kept = config_text(text, file, settings)
    parts, end = [], 0
    for start, stop in _comments(kept):
        parts += [kept[end:start], secrets.redact(kept[start:stop])]
        end = stop
    return "".join((*parts, kept[end:]))


def _comments(text: str) -> Iterator[tuple[int, int]]:
    """The spans that may hold comments: between the parts of YAML, and behind the sign of a block
    text.
    """
    end = 0
    tokens: Any = yaml.scan(text)
    for token in tokens:
        yield end, token.start_mark.index
        end = token.end_mark.index
        if isinstance(token, yaml.ScalarToken) and token.style in ("|", ">"):
            yield token.start_mark.index, text.index("\n", token.start_mark.index)
    yield end, len(text)
