"""CLIP's ids against those of the field's reference, and of transformers."""

import pickle

import pytest
import torch

from sd_scripts.errors import ConfigError
from sd_scripts.models.tokenizers.clip import END, ClipTokenizer, clean, clip_vocabulary
from sd_scripts.models.tokenizers.emphasis import weighted_pieces
from test.models.conftest import read_data

CASES = [case for case in read_data("golden/tokens.json.gz") if case["kind"] == "tokenize"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
@pytest.mark.parametrize(("expected", "pad"), [("clip_l", END), ("clip_g_pad0", 0)])
def test_golden_ids(case, expected, pad):
    tokenizer = ClipTokenizer(case["inputs"]["max_token_length"], pad)
    prompt, wanted = case["inputs"]["prompt"], case["expected"][expected]
    ids = tokenizer([prompt, ""]).ids[0]
    assert ids.dtype == torch.int64
    assert list(ids[0].shape) == wanted["shape"]
    assert ids[0].flatten().tolist() == wanted["data"]


GOLDEN = read_data("golden/tokens.json.gz")
WEIGHTED = [case for case in GOLDEN if case["kind"] == "tokenize_weighted"]
PARSED = [case for case in GOLDEN if case["kind"] == "parse_weights"]


@pytest.mark.parametrize("case", PARSED, ids=lambda case: case["id"])
def test_golden_emphasis(case):
    pieces = weighted_pieces(case["inputs"]["text"])
    assert [text for text, _ in pieces] == [text for text, _ in case["expected"]]
    assert [weight for _, weight in pieces] == pytest.approx([weight for _, weight in case["expected"]])


@pytest.mark.parametrize("case", WEIGHTED, ids=lambda case: case["id"])
def test_golden_weights(case):
    tokens = ClipTokenizer(case["inputs"]["max_token_length"], END, 0, reads_weights=True)([case["inputs"]["prompt"]])
    expected = case["expected"]
    assert tokens.ids[0][0].flatten().tolist() == expected["clip_l"]["data"]
    assert tokens.ids[1][0].flatten().tolist() == expected["clip_g_pad0"]["data"]
    for name in ("clip_l_weights", "clip_g_weights"):
        assert tokens.weights[0].flatten().tolist() == pytest.approx(expected[name]["data"])


@pytest.mark.parametrize(
    "text", ["(", "[", ")", "]", "a)b", "(a]b", "\\", "(a:)", "(a:1.2.3)", "a:1.2)", "((a)", ":", "\n(a\nb:2)"]
)
def test_no_text_is_lost_to_emphasis(text):
    letters = "".join(piece for piece, _ in weighted_pieces(text))
    assert [c for c in letters if c.isalnum() or c.isspace()] == [
        c for c in text if c.isalnum() or c.isspace()
    ] or "2" in text


def test_counts_go_beyond_the_limit():
    tokenizer = ClipTokenizer(150)
    assert tokenizer.limit == 150
    assert tokenizer.count("a cat") == 2
    assert tokenizer.count("cat " * 200) == 200
    assert tokenizer.count("") == 0


@pytest.mark.parametrize("tokens", [74, 75, 76, 149, 150, 151])
@pytest.mark.parametrize("pad", [END, 0])
def test_every_row_has_a_start_and_an_end(tokens, pad):
    rows = ClipTokenizer(150, pad).rows("cat " * tokens)
    first, second = (row[1 : row.index(END)] for row in rows)
    assert all(row[0] == 49406 and len(row) == 77 and set(row[row.index(END) + 1 :]) <= {pad} for row in rows)
    assert first + second == [2368] * min(tokens, 150)


@pytest.mark.parametrize(
    "text",
    [
        *["<|endoftext|> a", "a <|startoftext|>b", "it's  we'LL \n\t x", "  ", "1234 5.6e-3", "(((a:1.2)))", "_a_b__"],
        *["日本語テキスト", "a" * 300, "ñÑ Ⅷ ½ 😀👩‍👩‍👧", "naïve café", "\\(x\\), [y|z]"],
    ],
)
def test_same_ids_as_transformers(text):
    from transformers import CLIPTokenizer

    vocabulary, merges = clip_vocabulary()
    assert len(vocabulary) == 49408
    reference = CLIPTokenizer(vocab=vocabulary, merges=merges)
    assert ClipTokenizer().ids(text) == reference(clean(text), add_special_tokens=False).input_ids


def test_it_pickles_small():
    tokenizer = ClipTokenizer(225, 0)
    tokenizer(["fill the cache"])
    data = pickle.dumps(tokenizer)
    assert len(data) < 500
    assert torch.equal(pickle.loads(data)(["a cat"]).ids[0], tokenizer(["a cat"]).ids[0])


def test_other_lengths_are_refused():
    with pytest.raises(ConfigError, match="max_token_length = 77: must be 75, 150 or 225"):
        ClipTokenizer(77)
