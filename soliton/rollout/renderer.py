"""Messages to tokens, append only: what was sampled is never encoded again.

The renderer owns the chat template. It renders role patterns with sentinels for contents, once each, cuts the text at
the sentinels and keeps the pieces between them. A context is then

    first(messages)  | sampled action | next(messages) | sampled action | next(messages) ...

Pieces are encoded with special tokens, contents without: a marker that a tool prints stays plain characters (fault
B2). Demonstrations are made of exactly the same pieces, so a model is fine-tuned on what it will see.

The context policy is "append" (fault D2): a template that would drop an earlier turn's thinking is not asked about
earlier turns; the context keeps what was sampled. It knows no engine and no environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from jinja2 import TemplateError

from soliton.envs.environment import Message
from soliton.errors import ConfigError
from soliton.types import Role


class AddedToken(Protocol):
    """What the renderer reads of `tokenizers.AddedToken`."""

    special: bool


class ChatTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used here."""

    @property
    def eos_token_id(self) -> int | None:
        """Id of the end-of-sequence token."""
        ...

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """Added tokens by id."""
        ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        """Render messages to text."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool, split_special_tokens: bool) -> list[int]:
        """Text to ids."""
        ...

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        """Ids to text."""
        ...


class Rendered(NamedTuple):
    """Tokens and the role of each, of equal length."""

    token_ids: tuple[int, ...]
    roles: tuple[int, ...]


class _After(NamedTuple):
    """What follows an action: `closing` ends it, `pieces` surround the contents of the next messages."""

    closing: tuple[int, ...]
    pieces: tuple[tuple[int, ...], ...]


class Renderer:
    """Renders for one tokenizer; shared by all episodes.

    Args:
        tokenizer: any Hugging Face tokenizer with a chat template.
        stop_strings: an action also ends with the token that completes one of these; the environment does not see it.

    Raises:
        ConfigError: the template drops a content, or its text with one more message does not begin with its text
            before, or it does not end an assistant message with a special token. Raised here for the common role
            patterns and at first use for others.
    """

    def __init__(self, tokenizer: ChatTokenizer, stop_strings: tuple[str, ...] = ()) -> None:
        self._tokenizer = tokenizer
        self.stop_strings = stop_strings
        self._special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        if tokenizer.eos_token_id is not None:
            self._special.add(tokenizer.eos_token_id)
        self._opening = lru_cache(maxsize=None)(self._render_opening)
        self._after = lru_cache(maxsize=None)(self._render_after)
        self._opening(("user",))
        self._closing = self._after(("user",)).closing
        stops = dict.fromkeys([self._closing[-1], tokenizer.eos_token_id])
        self.stop_token_ids: tuple[int, ...] = tuple(i for i in stops if i is not None)

    def first(self, messages: Sequence[Message]) -> Rendered:
        """The context of the first action, generation prompt included."""
        return self._join(self._opening(_roles(messages)), messages)

    def next(self, messages: Sequence[Message], last_token_id: int) -> Rendered:
        """What to append after an action whose last sampled token is `last_token_id`, generation prompt included.

        A sampled stop token already ends the action. One that ended by a stop string gets its end token here, as
        TEMPLATE: nobody sampled it (fault B4).
        """
        closing, pieces = self._after(_roles(messages))
        if last_token_id in self.stop_token_ids:
            closing = ()
        return self._join((closing + pieces[0], *pieces[1:]), messages)

    def action_text(self, token_ids: Sequence[int]) -> str:
        """The text of a sampled action, without its stop token or string. Other special tokens stay visible."""
        ids = list(token_ids)
        if ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        text = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        ends = [text.find(stop) for stop in self.stop_strings if stop in text]
        return text[: min(ends)] if ends else text

    def demonstration(self, messages: Sequence[Message]) -> Rendered:
        """A whole episode for supervised fine-tuning: assistant contents and their end tokens are ACTION.

        Messages after the last assistant message are left out: no action follows them.

        Raises:
            ValueError: no assistant message, or one that nothing precedes.
        """
        where = [i for i, message in enumerate(messages) if message.role == "assistant"]
        if not where or where[0] == 0:
            raise ValueError(f"a demonstration is a prompt and then actions; got the roles {_roles(messages)}")
        token_ids, roles = map(list, self.first(messages[: where[0]]))
        for start, end in zip(where, [*where[1:], None], strict=True):
            action = self._encode_content(messages[start].content) + self._closing
            token_ids += action
            roles += [Role.ACTION.value] * len(action)
            if end is not None:
                between = self.next(messages[start + 1 : end], self._closing[-1])
                token_ids += between.token_ids
                roles += between.roles
        return Rendered(tuple(token_ids), tuple(roles))

    def _join(self, pieces: Sequence[tuple[int, ...]], messages: Sequence[Message]) -> Rendered:
        token_ids, roles = list(pieces[0]), [Role.TEMPLATE.value] * len(pieces[0])
        for message, piece in zip(messages, pieces[1:], strict=True):
            content = self._encode_content(message.content)
            token_ids += content + piece
            roles += [Role.OBSERVATION.value] * len(content) + [Role.TEMPLATE.value] * len(piece)
        return Rendered(tuple(token_ids), tuple(roles))

    def _encode_content(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    def _encode_piece(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False))

    def _render_opening(self, roles: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(map(self._encode_piece, self._pieces(roles)))

    def _render_after(self, roles: tuple[str, ...]) -> _After:
        """Cut what follows an action, and check with a second turn that the template only appends."""
        before = self._pieces(("user",))
        once = self._pieces(("user", "assistant", *roles))
        twice = self._pieces(("user", "assistant", *roles, "assistant", *roles))
        after = once[2:]
        if (*before, *after) != once or (*before, *after, *after) != twice:
            raise ConfigError(
                f"the chat template does not only append: with the roles {('user', 'assistant', *roles)} it renders "
                f"{once}, after {before} for the prompt alone, and {twice} for two such turns; sampled tokens would "
                "be rewritten. Use a template whose text for a conversation begins with its text for each beginning"
            )
        ids = self._encode_piece(after[0])
        ends = [i for i, token in enumerate(ids) if token in self._special]
        if not ends:
            raise ConfigError(
                f"the chat template does not end an assistant message with a special token: {after[0]!r} follows it; "
                "use a template that does"
            )
        cut = ends[0] + 1
        return _After(ids[:cut], (ids[cut:], *map(self._encode_piece, after[1:])))

    def _pieces(self, roles: tuple[str, ...]) -> tuple[str, ...]:
        """The text around the contents of messages with these roles, generation prompt included."""
        sentinels = [f"Zq{i}qZ" for i in range(len(roles))]
        messages = [{"role": role, "content": content} for role, content in zip(roles, sentinels, strict=True)]
        try:
            text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise ConfigError(
                f"the chat template refuses the roles {roles}: {error}; use roles it knows, or another template"
            ) from error
        pieces = []
        rest = text
        for sentinel in sentinels:
            piece, found, rest = rest.partition(sentinel)
            if not found or text.count(sentinel) != 1:
                raise ConfigError(
                    f"the chat template drops, repeats or reorders contents: with the roles {roles} it renders "
                    f"{text!r}; use a template that shows each message once, in order"
                )
            pieces.append(piece)
        return (*pieces, rest)


def _roles(messages: Sequence[Message]) -> tuple[str, ...]:
    return tuple(message.role for message in messages)
