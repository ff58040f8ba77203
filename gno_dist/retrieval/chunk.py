"""Cutting documents into passages, by words and paragraphs; pure.

A passage never splits a word of ordinary length. A CJK character counts as a word, since its
scripts have no spaces; a long word counts as several, since models read it as many tokens.
"""

import re
from collections.abc import Iterator, Sequence

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]{{1,40}}")
_PARAGRAPH = re.compile(r"\n\s*\n")
_CHARACTERS = 8
"""Characters that count as one word."""

Span = tuple[int, int, int]
"""Start, end and size in words of a word."""


def count_words(text: str) -> int:
    """Size of a text in words: each CJK character one, others one for every 8 characters begun."""
    return sum(size for _, _, size in _spans(text))


def chunk(text: str, *, max_words: int, overlap_words: int) -> list[str]:
    """Cut a text into passages of at most ``max_words`` words, counted as ``count_words`` does.

    Paragraphs are packed whole while they fit. A paragraph longer than the limit is cut into
    windows that repeat at least ``overlap_words`` words of the window before, where words are
    short enough. A text without words gives one passage, so that every document has one.

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


def _spans(text: str) -> list[Span]:
    return [
        (match.start(), match.end(), -(-len(match.group()) // _CHARACTERS))
        for match in _WORD.finditer(text)
    ]


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in _PARAGRAPH.split(text):
        if stripped := paragraph.strip():
            yield stripped


def _windows(paragraph: str, max_words: int, overlap_words: int) -> Iterator[str]:
    spans = _spans(paragraph)
    first = 0
    while True:
        end = _fill(spans, first, max_words)
        yield paragraph[spans[first][0] : spans[end - 1][1]]
        if end == len(spans):
            return
        first = max(first + 1, _back(spans, end, overlap_words))


def _fill(spans: Sequence[Span], first: int, max_words: int) -> int:
    """The end (exclusive) of the longest run from ``first`` that fits; at least one word."""
    used, end = 0, first
    while end < len(spans) and (end == first or used + spans[end][2] <= max_words):
        used += spans[end][2]
        end += 1
    return end


def _back(spans: Sequence[Span], end: int, overlap_words: int) -> int:
    """The start of the shortest run before ``end`` that holds the overlap."""
    start, held = end, 0
    while start > 0 and held < overlap_words:
        start -= 1
        held += spans[start][2]
    return start
