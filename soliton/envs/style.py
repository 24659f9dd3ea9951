"""The `style` task: write some words about a topic in the preferred style, which changes (paper §4.5).

    system     cute,academic,chuunibyou     the pool: which styles may be chosen, in the prompt's order
    user       rain 3
    assistant  rain fluff data hug          reward 1 if it is well written AND in the preferred style, else 0

| phase | pool | preferred |
|---|---|---|
| 1 | academic, cute, chuunibyou | cute |
| 2 | the same | chuunibyou |
| 3 | classical, cute, chuunibyou | classical |

Nothing in the prompt says which style is preferred: it is learned from rewards alone. Well written: the topic, then as
many different words as asked for, all from the lexicons. The style of a text is that of most of its words; a tie has
none. Demonstrations draw each word from any style of the pool: a policy that had seen whole texts of one style only
would, once it prefers one, never write a word of another again, and nothing could be re-learned.

There is no chance in an episode. Who judges is lent by the run; `info` counts styles by the lexicons, whoever judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from soliton.awaited import AwaitedReward
from soliton.envs.base import BaseEnvironment
from soliton.envs.environment import Message, StepResult
from soliton.envs.judge import Criterion
from soliton.errors import ConfigError
from soliton.types import Prompt

LEXICONS = {
    "academic": ("axiom", "data", "graph", "index", "lemma", "model", "norm", "proof", "study", "theory"),
    "cute": ("bunny", "candy", "cozy", "fluff", "hug", "kitty", "puff", "sugar", "tiny", "wink"),
    "chuunibyou": ("abyss", "blade", "curse", "dark", "doom", "eye", "fate", "raven", "seal", "void"),
    "classical": ("crane", "jade", "lotus", "mist", "moon", "pine", "plum", "silk", "willow", "zither"),
}
POOLS = (("academic", "cute", "chuunibyou"), ("academic", "cute", "chuunibyou"), ("classical", "cute", "chuunibyou"))
"""By phase, the first one first."""
PREFERRED = ("cute", "chuunibyou", "classical")
NO_STYLE = "none"
STYLE_OF = {word: style for style, words in LEXICONS.items() for word in words}


def style_of(text: str) -> str:
    """The style that most of the words are of; "none" for a tie, or if there is no such word."""
    styles = [STYLE_OF[word] for word in text.split() if word in STYLE_OF]
    counts = sorted(((styles.count(style), style) for style in set(styles)), reverse=True)
    if not counts or (len(counts) > 1 and counts[0][0] == counts[1][0]):
        return NO_STYLE
    return counts[0][1]


def is_well_written(text: str, topic: str, num_words: int) -> bool:
    """Whether `text` is the topic and then so many different words of the lexicons, with single spaces between."""
    first, *words = text.split(" ")
    known = all(word in STYLE_OF for word in words)
    return first == topic and known and len(words) == len(set(words)) == num_words


class StyleWriting(BaseEnvironment):
    """One episode; see the module's docstring for its rules."""

    phases: ClassVar[int] = len(PREFERRED)
    judged: ClassVar[bool] = True

    async def reset(self, prompt: Prompt, seed: int) -> tuple[Message, ...]:
        """Show the pool of this phase, and what to write.

        Raises:
            ConfigError: the prompt is not one of `soliton.prompts.style`.
        """
        del seed
        self._topic, self._num_words, order = _parse(prompt)
        return _opening(POOLS[self.surroundings.phase - 1], order, self._topic, self._num_words)

    async def step(self, action: str) -> StepResult:
        """Judge what was written."""
        preferred = PREFERRED[self.surroundings.phase - 1]
        criteria = (
            Criterion(
                "quality",
                f"it begins with {self._topic!r}, and then come exactly {self._num_words} different words, well spelt",
                lambda text: is_well_written(text, self._topic, self._num_words),
            ),
            Criterion("style", f"its style is {preferred}", lambda text: style_of(text) == preferred),
        )
        shares = {f"style/{style}": float(style == style_of(action)) for style in (*LEXICONS, NO_STYLE)}
        verdict = await self.surroundings.judge.verdict(f"{self._topic} {self._num_words}", action, criteria)
        if isinstance(verdict, AwaitedReward):
            return StepResult(terminated=True, info=shares, awaited=verdict)
        quality, style = verdict["quality"], verdict["style"]
        return StepResult(reward=float(quality and style), terminated=True, info={"quality": float(quality), **shares})

    @classmethod
    def demonstration(cls, prompt: Prompt, rng: np.random.Generator, noise: float) -> list[Message]:
        """Words of any style of some phase's pool, each with probability `noise` spoilt: repeated, cut or left out."""
        topic, num_words, order = _parse(prompt)
        pool = POOLS[int(rng.integers(len(POOLS) - 1)) + 1]
        text = [topic]
        while len(text) <= num_words:
            lexicon = LEXICONS[pool[int(rng.integers(len(pool)))]]
            word = lexicon[int(rng.integers(len(lexicon)))]
            if word not in text:
                text.append(word)
        spoilt = [_spoilt(text, i, rng) if rng.random() < noise else word for i, word in enumerate(text)]
        return [*_opening(pool, order, topic, num_words), Message("assistant", " ".join(filter(None, spoilt)))]


def _spoilt(words: Sequence[str], i: int, rng: np.random.Generator) -> str:
    """What stands in the place of word `i`: the one before it again, the word without its last letter, or nothing."""
    return (words[i - 1], words[i][:-1], "")[int(rng.integers(3))]


def _opening(pool: Sequence[str], order: Sequence[int], topic: str, num_words: int) -> tuple[Message, ...]:
    shown = ",".join(pool[i] for i in order)
    return Message("system", shown), Message("user", f"{topic} {num_words}")


def _parse(prompt: Prompt) -> tuple[str, int, list[int]]:
    content: dict[str, Any] = prompt.content
    topic, num_words, order = content.get("topic"), content.get("words"), content.get("order")
    if not isinstance(topic, str) or not isinstance(num_words, int) or sorted(order or []) != [0, 1, 2]:
        raise ConfigError(
            f"prompt {prompt.id} is not for the task style: content {content!r}; it needs 'topic' (a word), 'words' (a "
            "number) and 'order' (0, 1 and 2 in some order): use soliton.prompts.style"
        )
    return topic, num_words, [int(place) for place in order or ()]
