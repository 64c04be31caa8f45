"""The demo's sentences, and how sentences become feeds."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

Feeds = dict[str, NDArray[np.int64]]

SENTENCES = (
    "A man is playing the guitar on a busy street.",
    "The central bank raised its interest rate by half a percent.",
    "Heavy rain flooded several villages along the river.",
    "She bakes fresh bread every morning before sunrise.",
    "A street musician strums his instrument for the people passing by.",
    "Borrowing money became more expensive after the latest decision on monetary policy.",
    "The stream burst its banks after days of downpours, and houses stood under water.",
    "At dawn, warm loaves come out of her oven.",
)
LONGEST = 256  # tokens; the model was trained on no more


def tokenize(tokenizer: Tokenizer, sentences: Sequence[str], length: int | None = None) -> Feeds:
    """Token ids, attention mask and token types, int64 [sentences, length]; `length` None pads to the longest."""
    tokenizer.enable_truncation(length or LONGEST)
    tokenizer.enable_padding(length=length)
    encodings = tokenizer.encode_batch(list(sentences))
    return {
        "input_ids": np.array([encoding.ids for encoding in encodings], np.int64),
        "attention_mask": np.array([encoding.attention_mask for encoding in encodings], np.int64),
        "token_type_ids": np.array([encoding.type_ids for encoding in encodings], np.int64),
    }
