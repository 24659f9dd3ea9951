import pytest
from transformers import AutoTokenizer

from soliton.models.character_tokenizer import CHARACTERS, SPECIAL_TOKENS, character_tokenizer
from soliton.models.tiny import tiny_qwen3_config

TEXT = "78-62*3 =48\nHello, World! (a) [b] <c>"


@pytest.fixture(scope="module")
def tokenizer():
    return character_tokenizer()


def test_it_has_at_most_96_entries_one_per_character(tokenizer):
    assert len(tokenizer) == 96
    assert tokenizer.convert_ids_to_tokens(range(96)) == [*SPECIAL_TOKENS, *CHARACTERS]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.eos_token_id) == (0, 1, 2)


def test_text_comes_back_verbatim_one_token_per_character(tokenizer):
    ids = tokenizer.encode(TEXT, add_special_tokens=False)
    assert len(ids) == len(TEXT)
    assert tokenizer.decode(ids) == TEXT


def test_unknown_characters_become_unk(tokenizer):
    assert tokenizer.encode("1é2\ufffd", add_special_tokens=False)[1::2] == [tokenizer.unk_token_id] * 2


def test_the_template_costs_two_marks_a_message(tokenizer):
    messages = [
        {"role": "user", "content": "78-62*3"},
        {"role": "assistant", "content": "78-62"},
        {"role": "tool", "content": "16*3"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<user>78-62*3<end><model>78-62<end><tool>16*3<end><model>"
    assert len(tokenizer.encode(text, add_special_tokens=False)) == 7 + 5 + 4 + 2 * 3 + 1


def test_contents_keep_their_whitespace(tokenizer):
    text = tokenizer.apply_chat_template([{"role": "user", "content": "\n a \n"}], tokenize=False)
    assert text == "<user>\n a \n<end>"


def test_an_unknown_role_is_refused(tokenizer):
    with pytest.raises(Exception, match="unknown role judge"):
        tokenizer.apply_chat_template([{"role": "judge", "content": ""}], tokenize=False)


def test_it_loads_through_autotokenizer_from_a_model_folder(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    tiny_qwen3_config(len(tokenizer)).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path, local_files_only=True)
    marked = "<user>" + TEXT + "<end>é"
    for split in (False, True):
        expected = tokenizer.encode(marked, add_special_tokens=False, split_special_tokens=split)
        assert loaded.encode(marked, add_special_tokens=False, split_special_tokens=split) == expected
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert loaded.chat_template == tokenizer.chat_template
    assert (loaded.pad_token_id, loaded.unk_token_id, loaded.eos_token_id) == (0, 1, 2)
    assert loaded.decode(loaded.encode(TEXT, add_special_tokens=False)) == TEXT
