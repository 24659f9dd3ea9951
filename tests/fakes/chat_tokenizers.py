"""Small real Hugging Face tokenizers with the chat templates of known families."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

QWEN3 = (  # tool outputs share a user turn; the thinking of turns before the last user message is dropped
    "{%- set ns = namespace(last=0) -%}"
    "{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}"
    "{%- for m in messages -%}"
    "{%- if m.role == 'assistant' -%}"
    "{%- set text = m.content -%}"
    "{%- if '</think>' in text and loop.index0 < ns.last -%}{%- set text = text.split('</think>')[-1] -%}{%- endif -%}"
    "{{- '<|im_start|>assistant\n' + text + '<|im_end|>\n' -}}"
    "{%- elif m.role == 'tool' -%}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}"
    "{{- '\n<tool_response>\n' + m.content + '\n</tool_response>' -}}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}"
    "{%- else -%}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)

LLAMA3 = (
    "{{ '<|begin_of_text|>' }}{% for m in messages %}"
    "<|start_header_id|>{{ 'ipython' if m.role == 'tool' else m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)

QWEN_SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
LLAMA_SPECIALS = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")


def chat_tokenizer(
    template: str, specials: tuple[str, ...] = QWEN_SPECIALS, eos: str = "<|im_end|>"
) -> PreTrainedTokenizerFast:
    """A BPE over ASCII with the merges `ab` and `abc`, so that some texts have several tokenisations."""
    characters = ["\n", *map(chr, range(32, 127)), "\ufffd"]
    vocabulary = {token: i for i, token in enumerate(["<unk>", *specials, *characters, "ab", "abc"])}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b"), ("ab", "c")], unk_token="<unk>"))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in ("<unk>", *specials)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", eos_token=eos, clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = template
    return tokenizer
