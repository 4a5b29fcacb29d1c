"""Requests: what one asks of a server, its place in a session, and what a turn was answered."""

from collections.abc import Callable
from dataclasses import dataclass

Content = str | list[int]


@dataclass(frozen=True, slots=True)
class TurnReply:
    """The answer to a turn of a session, with the server's counts.

    Tokens of reasoning and of tool calls, which are not in the text, are not counted. `asked_osl`
    is 0 where no length was forced.
    """

    text: str
    prompt_tokens: int | None
    completion_tokens: int | None
    asked_osl: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a request in its session: its number from 0, the prompt tokens known to the
    server from before, and the seconds to wait before it is sent. `then` makes the next turn from
    the answer; None: this is the last turn. For a mix, `class_index` is the place of its class.
    """

    number: int
    reusable: int | None
    pause: float
    then: "Callable[[TurnReply], Prompt] | None"
    class_index: int | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one request asks: its content and the two lengths wanted, in tokens (an `isl` of 0 is
    not known).

    Prompts with different `salt` share no prefix cache, on the servers that have such a thing.
    `shares`: it may have text in common with others that is meant to be cached. For a session,
    `history` is the earlier text, of the user and the model in turn.
    """

    content: Content
    isl: int
    osl: int
    salt: str | None = None
    shares: bool = False
    history: tuple[str, ...] = ()
    turn: Turn | None = None

    @property
    def text(self) -> Content:
        """The whole prompt as one text, where there are no messages: each answer is followed by a
        space and the user's next text.
        """
        if not self.history:
            return self.content
        assert isinstance(self.content, str), "a history of texts goes on with a text"
        said = "".join(f"{user}{model} " for user, model in zip(*[iter(self.history)] * 2, strict=True))
        return said + self.content


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request ready to be sent.

    It has its number in the trial, its bytes, the output tokens that they ask for (0: no length is
    forced), the number of its session, and the prompt that the bytes were made of.
    """

    index: int
    body: bytes
    osl: int
    session: int
    prompt: Prompt

    @property
    def pause(self) -> float:
        """Seconds of thinking before it."""
        return 0.0 if self.prompt.turn is None else self.prompt.turn.pause

    @property
    def goes_on(self) -> bool:
        """Whether another turn of its session is made from the answer, so that the text of the
        answer is kept.
        """
        return self.prompt.turn is not None and self.prompt.turn.then is not None


NO_REQUEST = PreparedRequest(0, b"", 0, 0, Prompt("", 0, 0))
