"""Prompts of the `style` task: a topic, how many words to write about it, and the order in which the pool is shown.

Example content: `{"topic": "rain", "words": 3, "order": [2, 0, 1]}`. More words are harder: each may be misspelt or
repeated, and their style is decided by most of them. So a critic that reads the prompt has something to know; with
`even_style_item`, where every prompt asks for three words, it has not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_WORDS = """
acorn anchor apple apron arrow attic bakery balcony barn basket beach bell bench blanket boat bottle bread brick
bridge broom bucket button cabin camel candle canyon carpet castle cellar chain chair cheese chimney circus cliff
clock cloud coast coin comet copper corner cottage cradle cup curtain desert dinner door drum eagle engine farm
feather fence ferry field fire flag flute forest fork fossil fountain fox garden gate glass goat grape hammer harbor
harvest hill horse island jacket journey jungle kettle key kitchen ladder lamp lantern leaf lemon letter library
market meadow mirror mountain museum needle nest oak ocean orchard oven paper pebble pencil piano pillow planet pocket
pond potato queen rabbit radio rain ribbon ring river road robot roof rope sailor salt sand school shell shovel snow
spoon stone storm street teacup tent tiger tower train tunnel valley village wagon water whale wheel window winter
wolf yard
"""
TOPICS = tuple(_WORDS.split())
MAX_WORDS = 5
EVEN_WORDS = 3


def style_item(rng: np.random.Generator) -> dict[str, Any]:
    """A prompt's content; every topic, number of words and order is equally likely."""
    return _item(rng, int(rng.integers(1, MAX_WORDS + 1)))


def even_style_item(rng: np.random.Generator) -> dict[str, Any]:
    """The same with as many words in every prompt: all are equally hard."""
    return _item(rng, EVEN_WORDS)


def _item(rng: np.random.Generator, num_words: int) -> dict[str, Any]:
    topic = TOPICS[int(rng.integers(len(TOPICS)))]
    return {"topic": topic, "words": num_words, "order": rng.permutation(3).tolist()}
