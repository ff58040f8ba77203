"""Cutting documents into passages, by words and paragraphs; pure.

A passage never splits a word. A CJK character counts as a word, since its scripts have no spaces.
"""

import re
from collections.abc import Iterator

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]+")
_PARAGRAPH = re.compile(r"\n\s*\n")


def count_words(text: str) -> int:
    """Number of words; each CJK character is one."""
    return sum(1 for _ in _WORD.finditer(text))


def chunk(text: str, *, max_words: int, overlap_words: int) -> list[str]:
    """Cut a text into passages of at most ``max_words`` words.

    Paragraphs are packed whole while they fit. A paragraph longer than the limit is cut into
    windows that share ``overlap_words`` words with the window before. A text without words gives
    one passage, so that every document has one.

    Raises:
        ValueError: the overlap is not smaller than the limit.
    """
    if overlap_words >= max_words:
        raise ValueError(f"overlap of {overlap_words} words in passages of {max_words}")
    passages: list[str] = []
    packed: list[str] = []
    used = 0
    for paragraph in _paragraphs(text):
        size = count_words(paragraph)
        if packed and used + size > max_words:
            passages.append("\n\n".join(packed))
            packed, used = [], 0
        if size > max_words:
            passages.extend(_windows(paragraph, max_words, overlap_words))
        else:
            packed.append(paragraph)
            used += size
    if packed:
        passages.append("\n\n".join(packed))
    return passages or [text.strip()]


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in _PARAGRAPH.split(text):
        if stripped := paragraph.strip():
            yield stripped


def _windows(paragraph: str, max_words: int, overlap_words: int) -> Iterator[str]:
    spans = [match.span() for match in _WORD.finditer(paragraph)]
    step = max_words - overlap_words
    for start in range(0, len(spans), step):
        window = spans[start : start + max_words]
        yield paragraph[window[0][0] : window[-1][1]]
        if start + max_words >= len(spans):
            return
