"""The reward of two parts of a text, designed against keyword stuffing: R = M min(Q1, Q2) r, in [0, 1].

M measures how the parts fit together, with the ideas of the published reward:

    0.4 tent(words of 2 / words of 1; 1.1, 1.6, 3.2, 5)  +  0.2 ramp(share of 2's content words new; 0.1, 0.4)
    + 0.2 min(1, kinds of connectives / 3)               +  0.2 tent(Jaccard of their words; 0, 0.08, 0.4, 0.8)

A connective counts once per sentence, at its beginning, and only if the sentence has three or more content words. For
an introduction the first band is 0.8, 1.3, 1.6, 2. Q measures whether a part is prose about its source. It is a product
of:

    ramp(content words that the source has; 0.15, 0.5)
    ramp(neighbouring words of the source in a sentence that share a sentence there; 0.25, 0.6)
    1 - ramp(runs of six words copied; 0.1, 0.5)        1 - ramp(runs of four content words copied; 0.3, 0.7)
    1 - ramp(runs of eight words whose function words stand as in a run of the source; 0.2, 0.5)
    ramp(pairs of words that are distinct; 0.6, 0.9)
    1 - ramp(connectives per word; 0.12, 0.25)          stop-words within 0.45 +- 0.15, nothing at +- 0.3
    ramp(distinct stop-words of the first 30; 0.1, 0.3)
    skeleton: how much likelier its function words are in their order than alone

r = ramp(share of the source's content words that the two parts keep; 0.1, 0.45). The skeleton is a trigram model of the
function words in the training texts, in which a content word is C and a number is N. Its ramp starts at a score that 80
% of the shuffled texts, and 90 % of the texts' content words joined by common words, do not exceed. It ends at the 20th
percentile of the unchanged texts. All of this is ours. The reward cannot judge meaning: borrowed grammar around the
words of the source may earn a part of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from random import Random

from coterie_worlds.writing.words import CONNECTIVES, STOP, content, ramp, sentences, tent, words

FEWEST = 8
"""Minimum words of a part: a shorter one is worth nothing."""
COPIED, COPIED_CONTENT, COPIED_SHAPE = 6, 4, 8
"""Words of a run that is looked for in the source, content words of one, and words of one without its content words."""
FEWEST_JOINED = 3
"""Minimum function words of a run without its content words."""
SAMPLE = 1000
"""Maximum training texts that the skeleton is learned from."""
GLUE = 8
"""Number of the commonest function words: content words with these between them are no prose."""
SLOPE = 0.05
"""Minimum width of the skeleton's ramp."""
PENALTY = 0.4
"""Factor of backing off, in the trigram model."""
BANDS = {"summary": (1.1, 1.6, 3.2, 5.0), "introduction": (0.8, 1.3, 1.6, 2.0)}


@dataclass(frozen=True)
class Prose:
    """The measure of prose, with a skeleton. low, high: the gains from which and up to which it pays."""

    grams: Counter[tuple[str, ...]]
    low: float
    high: float

    def measure(self, source: str, first: str, second: str, form: str = "summary") -> dict[str, float]:
        """Returns the factors of the reward R, and R as `reward`."""
        one, two = sentences(first), sentences(second)
        if min(sum(map(len, one)), sum(map(len, two))) < FEWEST:
            return {"together": 0.0, "quality": 0.0, "kept": 0.0, "reward": 0.0}
        known = set(content(words(source)))
        said = {stemmed for its in (*one, *two) for stemmed in content(its)}
        factors = {
            "together": together(one, two, form),
            "quality": min(self.quality(source, one), self.quality(source, two)),
            "kept": ramp(len(known & said) / max(1, len(known)), 0.1, 0.45),
        }
        return {**factors, "reward": math.prod(factors.values())}

    def quality(self, source: str, text: list[list[str]]) -> float:
        """Returns the quality Q of a part, given as the words of its sentences."""
        every = [word for its in text for word in its]
        about = IndexedSource.of(source)
        stems = content(every)
        starts = sum(opening(its) != "" for its in text)
        joined = [word for word in every if word in STOP]
        stops, some = len(joined) / len(every), joined[:30]
        return math.prod(
            (
                ramp(sum(word in about.stems for word in stems) / max(1, len(stems)), 0.15, 0.5),
                ramp(about.neighbours(text), 0.25, 0.6),
                1.0 - ramp(share(_runs(every, COPIED), about.runs), 0.1, 0.5),
                1.0 - ramp(share(_runs(stems, COPIED_CONTENT), about.content_runs), 0.3, 0.7),
                1.0 - ramp(share([run for its in text for run in _shapes(its)], about.shapes), 0.2, 0.5),
                ramp(len(set(pairwise(every))) / max(1, len(every) - 1), 0.6, 0.9),
                1.0 - ramp(max(starts, connectives(every)) / len(every), 0.12, 0.25),
                1.0 - ramp(abs(stops - 0.45), 0.15, 0.3),
                ramp(len(set(some)) / max(1, len(some)), 0.1, 0.3),
                ramp(self.gain(text), self.low, self.high),
            )
        )

    def gain(self, text: list[list[str]]) -> float:
        """Returns the mean logarithm by which the skeleton's trigrams are likelier than its words alone."""
        gains = [gain for its in text for gain in _gains(self.grams, skeleton(its))]
        return sum(gains) / max(1, len(gains))


@dataclass(frozen=True)
class IndexedSource:
    """A source as the measure looks things up in it: its stems, sentences and runs."""

    stems: frozenset[str]
    sentences: tuple[frozenset[str], ...]
    runs: frozenset[tuple[str, ...]]
    content_runs: frozenset[tuple[str, ...]]
    shapes: frozenset[tuple[str, ...]]

    @staticmethod
    @lru_cache(maxsize=512)
    def of(text: str) -> IndexedSource:
        """Returns the source of a text."""
        its = sentences(text)
        every = [word for sentence in its for word in sentence]
        stems = content(every)
        return IndexedSource(
            frozenset(stems),
            tuple(frozenset(content(one)) for one in its),
            frozenset(_runs(every, COPIED)),
            frozenset(_runs(stems, COPIED_CONTENT)),
            frozenset(run for one in its for run in _shapes(one)),
        )

    def neighbours(self, text: list[list[str]]) -> float:
        """Returns the share of neighbouring words of the source, others left out, that share a sentence there."""
        pairs = [
            (left, right)
            for its in text
            for left, right in pairwise(word for word in content(its) if word in self.stems)
            if left != right
        ]
        return sum(any({*pair} <= one for one in self.sentences) for pair in pairs) / max(1, len(pairs))


def share(some: list[tuple[str, ...]], known: frozenset[tuple[str, ...]]) -> float:
    """Returns the share of runs that are known."""
    return sum(run in known for run in some) / max(1, len(some))


def _runs(every: list[str], length: int) -> list[tuple[str, ...]]:
    return [tuple(every[at : at + length]) for at in range(len(every) - length + 1)]


def _shapes(sentence: list[str]) -> list[tuple[str, ...]]:
    """Returns runs of a sentence's skeleton that say something of its grammar."""
    runs = _runs(skeleton(sentence), COPIED_SHAPE)
    return [run for run in runs if sum(word not in "CN" for word in run) >= FEWEST_JOINED]


def together(one: list[list[str]], two: list[list[str]], form: str) -> float:
    """Returns M, how two parts fit together; each is given as the words of its sentences."""
    first, second = ([word for its in text for word in its] for text in (one, two))
    said = set(content(first))
    stems = content(second)
    new = sum(word not in said for word in stems) / max(1, len(stems))
    kinds = {opening(its) for its in two} - {""}
    common = len(said & set(stems)) / max(1, len(said | set(stems)))
    return (
        0.4 * tent(len(second) / max(1, len(first)), *BANDS[form])
        + 0.2 * ramp(new, 0.1, 0.4)
        + 0.2 * min(1.0, len(kinds) / 3)
        + 0.2 * tent(common, 0.0, 0.08, 0.4, 0.8)
    )


@lru_cache
def _openings() -> dict[tuple[str, ...], str]:
    return {tuple(phrase.split()): kind for kind, phrases in CONNECTIVES.items() for phrase in phrases}


def opening(sentence: list[str]) -> str:
    """Returns the kind of connective that a sentence begins with; none where it says too little beside it."""
    if len(content(sentence)) < 3:
        return ""
    return next((_openings()[head] for n in (4, 3, 2, 1) if (head := tuple(sentence[:n])) in _openings()), "")


@lru_cache
def _single() -> frozenset[str]:
    return frozenset(phrase for phrases in CONNECTIVES.values() for phrase in phrases if " " not in phrase) - STOP


def connectives(every: list[str]) -> int:
    """Returns the number of connectives of one word, wherever they stand; stop-words are left out."""
    return sum(word in _single() for word in every)


def skeleton(sentence: list[str]) -> list[str]:
    """Returns a sentence's function words, with C for a content word and N for a number."""
    return [word if word in STOP else "N" if word[0].isdigit() else "C" for word in sentence]


def learned(texts: Sequence[str], seed: int = 0) -> Prose:
    """Returns the measure with a skeleton of texts: learned from half of them, and its ramp from the other half."""
    rng = Random(seed)
    chosen = list(texts) if len(texts) <= SAMPLE else rng.sample(list(texts), SAMPLE)
    parts = [its for text in chosen if (its := sentences(text)) and sum(map(len, its)) >= FEWEST]
    known, others = parts[::2], parts[1::2] or parts
    grams: Counter[tuple[str, ...]] = Counter()
    for text in known:
        for its in text:
            padded = ["^", "^", *skeleton(its), "$"]
            for at in range(2, len(padded)):
                for n in range(3):
                    grams[tuple(padded[at - n : at + 1])] += 1
                grams[(padded[at - 2], padded[at - 1], "")] += 1
                grams[(padded[at - 1], "")] += 1
                grams[()] += 1
    prose = Prose(grams, 0.0, 1.0)
    honest = sorted(prose.gain(text) for text in others)
    mixed = sorted(prose.gain([rng.sample(its, len(its)) for its in text]) for text in others)
    counted = Counter(word for text in known for its in text for word in its if word in STOP)
    common = [word for word, _ in counted.most_common(GLUE)]
    glued = sorted(prose.gain([_glued(its, common) for its in text]) for text in others)
    low = max(mixed[int(0.8 * (len(mixed) - 1))], glued[int(0.9 * (len(glued) - 1))])
    return Prose(grams, low, max(honest[int(0.2 * (len(honest) - 1))], low + SLOPE))


def _glued(sentence: list[str], common: list[str]) -> list[str]:
    """Returns a sentence's content words, a common function word after each."""
    bare = [word for word in sentence if word not in STOP]
    return [word for at, one in enumerate(bare) for word in (one, common[at % len(common)])] if common else bare


def _gains(grams: Counter[tuple[str, ...]], its: list[str]) -> list[float]:
    padded = ["^", "^", *its, "$"]
    total = grams[()]
    gains: list[float] = []
    for at in range(2, len(padded)):
        before, last, word = padded[at - 2], padded[at - 1], padded[at]
        alone = (grams[(word,)] + 1) / (total + 1000)
        if grams[before, last, word]:
            likely = grams[before, last, word] / grams[before, last, ""]
        elif grams[last, word]:
            likely = PENALTY * grams[last, word] / grams[last, ""]
        else:
            likely = PENALTY**2 * alone
        gains.append(math.log(likely / alone))
    return gains
