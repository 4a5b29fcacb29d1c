"""Uses of a config's values beyond this process: commands that are run, files that are read, texts
that are sent. Each key that holds a text is marked with its use, so that the question for consent
shows them all. A test finds a key without a mark.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Use:
    """The use of a key.

    - `text`: the use in words, with {value} and {endpoint} to fill in; '' for no use.
    - `idle`: values that have no use.
    - `by`: 'sweep' where only a sweep uses the value; otherwise every command that reaches the
      server does.
    """

    text: str
    by: str = "all"
    idle: frozenset[str] = frozenset()


PLAIN = Use("")
"""A name, a choice, or a text that is sent as it stands in the config."""
RUN = Use("run  {value}", by="sweep")
POST = Use("post  how it ended, the run's path and this machine's name to {value}", by="sweep")
READ = Use("read  {value}, for TLS with {endpoint}")
READ_SESSIONS = Use("read  {value}, for the lengths of its requests", by="sweep")
READ_TIMES = Use("read  {value}, for its times of arrival", by="sweep")
MADE_PROMPTS = frozenset({"random", "natural"})
"""Values of `prompts` that are not the path of a file."""
SEND_FILE = Use("send  what {value} holds to {endpoint}", idle=MADE_PROMPTS)
SEND_VARIABLE = Use("send  ${value} to {endpoint}")
SEND_NAMED = Use("send  {value} to {endpoint}")
"""The use of a mapping: its variables are sent."""
ASK = Use("ask  {value}, with the keys and headers for {endpoint}", idle=frozenset({"none"}))
SEND_FROM = Use(
    "send  the load for {endpoint}, with its keys, from the Ray cluster {value}", by="sweep", idle=frozenset({"local"})
)
PROXY = Use("use  the proxies of the environment, with their passwords, for {endpoint}", idle=frozenset({"none"}))


def effects(model: BaseModel, endpoint: str) -> Iterator[Use]:
    """The uses of the values in a part of the config, in words; `endpoint` is the address of its
    server.
    """
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from effects(value, endpoint)
        for use in marks(field.annotation, field.metadata):
            for text in _texts(value):
                if use.text and text not in use.idle:
                    yield Use(use.text.format(value=text, endpoint=endpoint), use.by)


def marks(annotation: Any, metadata: Any = ()) -> list[Use]:
    """The marks of a field, also inside an optional type."""
    own = [mark for mark in (*metadata, *getattr(annotation, "__metadata__", ())) if isinstance(mark, Use)]
    return own + [mark for inner in get_args(annotation) for mark in marks(inner)]


def _texts(value: Any) -> list[str]:
    """The texts of a value, variables as $NAME. Of a mapping only its variables: the rest is sent
    as it stands.
    """
    if isinstance(value, str):
        variable = VARIABLE.fullmatch(value)
        return [f"${variable[1]}" if variable else value]
    if isinstance(value, Mapping):
        value = tuple(item for item in value.values() if isinstance(item, str) and VARIABLE.fullmatch(item))
    return [text for item in value for text in _texts(item)] if isinstance(value, tuple) else []
