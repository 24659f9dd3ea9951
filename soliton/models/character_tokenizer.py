"""A real Hugging Face tokenizer of 96 entries, one per character, with a chat template that costs two marks a message.

    <user>78-62*3<end><model>78-62<end><tool>16*3<end><model>

It is saved beside the tiny models, loads through `AutoTokenizer`, and encodes a special mark written in a content as
its characters when asked with `split_special_tokens=True` (fault B2). Characters outside the vocabulary become <unk>.
"""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, END = "<pad>", "<unk>", "<end>"
ROLE_MARKS = ("<user>", "<tool>", "<model>", "<system>")
SPECIAL_TOKENS = (PAD, UNKNOWN, END, *ROLE_MARKS)
_LEFT_OUT = "\\^`{|}~"
"""Printable ASCII that no task needs: 7 characters make room for the 7 special tokens."""
CHARACTERS = ("\n", *(c for c in map(chr, range(32, 127)) if c not in _LEFT_OUT))

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'assistant' -%}<model>"
    "{%- elif message['role'] in ['user', 'tool', 'system'] -%}<{{ message['role'] }}>"
    "{%- else -%}{{ raise_exception('unknown role ' ~ message['role']) }}{%- endif -%}"
    "{{ message['content'] }}<end>"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<model>{%- endif -%}"
)


def character_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer: pad 0, unk 1, end-of-turn (the eos token) 2, marks 3-6, then 89 characters."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *CHARACTERS))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in SPECIAL_TOKENS])
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        extra_special_tokens=list(ROLE_MARKS),
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
