"""Fusing ranked lists and blending in a reranker's scores; pure.

Retrievers list passages; rankings hold documents: a document stands where its best passage stands.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gno_dist.measures import rank_docs
from gno_dist.records import PassageHit, ScoredDoc


class RankedList(NamedTuple):
    """One retriever's passages for one query text, best first, with the weight of the list."""

    weight: float
    hits: Sequence[PassageHit]


def best_passages(lists: Sequence[RankedList]) -> dict[str, tuple[str, int]]:
    """For each document the passage that stands highest in any list.

    Earlier lists win ties, so the order of ``lists`` is part of the pipeline's definition.
    """
    best: dict[str, tuple[int, int]] = {}
    for ranked in lists:
        for rank, hit in enumerate(ranked.hits, start=1):
            if hit.docid not in best or rank < best[hit.docid][0]:
                best[hit.docid] = (rank, hit.seq)
    return {docid: (docid, seq) for docid, (_, seq) in best.items()}


def reciprocal_rank_fusion(lists: Sequence[RankedList], *, k: int) -> list[ScoredDoc]:
    """Fuse lists: score(d) = sum over lists of weight / (k + rank of d).

    Ranks count documents, from 1, after each list is folded to its documents' best passages.

    Source: Cormack, Clarke and Büttcher, SIGIR 2009 (unweighted, k = 60).
    """
    scores: dict[str, float] = {}
    for ranked in lists:
        docids = dict.fromkeys(hit.docid for hit in ranked.hits)
        for rank, docid in enumerate(docids, start=1):
            scores[docid] = scores.get(docid, 0.0) + ranked.weight / (k + rank)
    return rank_docs(scores)


def min_max(scores: Mapping[str, float]) -> dict[str, float]:
    """Scale scores to [0, 1]; all equal gives 1 for each."""
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    if high == low:
        return dict.fromkeys(scores, 1.0)
    return {docid: (score - low) / (high - low) for docid, score in scores.items()}


def blend(
    fused: Sequence[ScoredDoc], reranked: Mapping[str, float], *, rerank_weight: float
) -> list[ScoredDoc]:
    """Reorder the reranked head of a fused list; the tail keeps its order behind it.

    Head score = 1 + (1-w) * scaled fused + w * scaled rerank, both min-max scaled over the head;
    tail score = its fused score over the best fused score times a half, so below every head score.
    """
    head = {doc.docid: doc.score for doc in fused if doc.docid in reranked}
    scaled_fused, scaled_rerank = min_max(head), min_max(reranked)
    scores = {
        docid: 1.0
        + (1.0 - rerank_weight) * scaled_fused[docid]
        + rerank_weight * scaled_rerank[docid]
        for docid in head
    }
    top = max((doc.score for doc in fused), default=0.0)
    for doc in fused:
        if doc.docid not in head:
            scores[doc.docid] = 0.5 * doc.score / top if top > 0 else 0.0
    return rank_docs(scores)
