import pickle

import pytest
import torch

from sd_scripts.data import token_memo
from sd_scripts.data.token_memo import TokenMemo
from sd_scripts.models.base import Tokenizer, Tokens
from sd_scripts.models.tokenizers.clip import END, ClipTokenizer

CAPTIONS = ["a cat", "a dog, red", "", "a cat"]


class Counting(Tokenizer):
    """Weights for captions with a bracket."""

    calls = 0

    def __call__(self, captions):
        self.calls += 1
        ids = torch.tensor([[[len(caption)] * 3] for caption in captions])
        weights = torch.full(ids.shape, 1.5) if "(" in captions[0] else None
        return Tokens((ids, ids + 1), weights)

    def count(self, caption):
        return len(caption)

    @property
    def limit(self):
        return 3


def test_the_same_as_without():
    tokenizer = ClipTokenizer(75, END)
    memo = TokenMemo(tokenizer)
    for captions in (CAPTIONS, CAPTIONS[::-1], CAPTIONS[:1]):
        for found, wanted in zip(memo(captions).ids, tokenizer(captions).ids, strict=True):
            assert torch.equal(found, wanted)


def test_each_caption_is_tokenised_once_and_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(token_memo, "MOST", 10)
    counting = Counting()
    memo = TokenMemo(counting)
    memo(CAPTIONS)
    memo(CAPTIONS)
    assert counting.calls == 3
    for number in range(100):
        memo([f"caption {number}"])
        assert len(memo._known) <= 10


@pytest.mark.parametrize("captions", [["ab", "(a)"], ["(a)", "ab"], ["ab", "ab"]])
def test_weights_of_some_captions(captions):
    weights = TokenMemo(Counting())(captions).weights
    if not any("(" in caption for caption in captions):
        assert weights is None
        return
    assert weights.shape == (2, 1, 3)
    assert [row.unique().item() for row in weights] == [1.5 if "(" in caption else 1.0 for caption in captions]


def test_what_is_remembered_cannot_be_changed_from_outside():
    memo = TokenMemo(Counting())
    memo(["abc"]).ids[0][:] = 99
    assert memo(["abc"]).ids[0].unique().item() == 3


def test_it_travels_without_its_memory():
    memo = TokenMemo(ClipTokenizer(75, END))
    memo(CAPTIONS)
    assert pickle.loads(pickle.dumps(memo))._known == {}
