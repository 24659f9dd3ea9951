"""Prompts of the `style` task: a topic, how many words to write about it, and the order in which the pool is shown.

Example content: `{"topic": "rain", "words": 3, "order": [2, 0, 1]}`. More words are harder: each may be misspelt or
repeated, and their style is decided by most of them. So a critic that reads the prompt has something to know.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TOPICS = (
    *("bread", "bridge", "castle", "clock", "desert", "door", "engine", "farm", "garden", "glass", "hammer", "harbor"),
    *("island", "journey", "kettle", "ladder", "lamp", "letter", "market", "mirror", "mountain", "needle", "ocean"),
    *("paper", "queen", "radio", "rain", "river", "robot", "school", "snow", "stone", "street", "teacup", "tower"),
    *("train", "village", "window", "winter", "yard"),
)
MAX_WORDS = 5


def style_item(rng: np.random.Generator) -> dict[str, Any]:
    """A prompt's content; every topic, number of words and order is equally likely."""
    return {
        "topic": TOPICS[int(rng.integers(len(TOPICS)))],
        "words": int(rng.integers(1, MAX_WORDS + 1)),
        "order": rng.permutation(3).tolist(),
    }
