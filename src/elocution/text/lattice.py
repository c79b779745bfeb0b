"""Texts with several readings, and the pair of readings that differs least. Knows no language.

A text is a row of slots; a slot holds what is written and every way to read it aloud, the usual one first. A number, a
date or a symbol has several; most words have one. The slots of a text span a graph whose paths are the whole readings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

__all__ = ["Decision", "Pairing", "Reading", "Slot", "first_readings", "nearest_readings"]

_MAX_JOINED = 6  # words that may be written as one: "w w w dot" is read letter by letter, "iphone" in two
_EDIT = 1 << 20  # one edit outweighs any preference among readings


@dataclass(frozen=True, slots=True)
class Reading:
    """Words to be heard, lower case. `rule` names why they stand for what is written; empty for the words themselves."""

    words: tuple[str, ...]
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of text and its readings, the usual one first."""

    written: str
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """Why a piece of text counts as other words: `written` on `side` was taken as `read`, by `rule`."""

    side: str
    written: str
    read: str
    rule: str


@dataclass(frozen=True, slots=True)
class Pairing:
    """The readings of two texts that differ least, and the decisions behind them."""

    reference: tuple[str, ...]
    hypothesis: tuple[str, ...]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True)
class _Arc:
    start: int
    end: int
    word: str | None  # None: nothing is heard
    price: int = 0
    written: str = ""
    read: str = ""
    rule: str = ""


@dataclass
class _Graph:
    """Arcs by their last node; nodes are numbered so that an arc always leads to a higher one."""

    ends: list[list[_Arc]] = field(default_factory=lambda: [[]])

    def node(self) -> int:
        self.ends.append([])
        return len(self.ends) - 1

    def arcs(self) -> Iterator[_Arc]:
        for arcs in self.ends:
            yield from arcs


def first_readings(slots: Sequence[Slot]) -> tuple[str, ...]:
    """The words of a text when every slot is read the usual way."""
    return tuple(word for slot in slots for word in slot.readings[0].words)


def nearest_readings(reference: Sequence[Slot], hypothesis: Sequence[Slot]) -> Pairing:
    """The readings of both texts with the fewest word edits; among equals the usual ones.

    Words of the hypothesis that are written in one, or apart, where the reference writes them the other way ("i phone",
    "iphone") are taken as the reference writes them, so that its length does not depend on the hypothesis.
    """
    heard = first_readings(hypothesis)
    if not heard:
        return Pairing(first_readings(reference), (), ())
    if first_readings(reference) == heard:
        return Pairing(heard, heard, (*_usual("reference", reference), *_usual("hypothesis", hypothesis)))
    wanted, said = _graph(reference), _graph(hypothesis)
    said = _with_compounds(said, wanted)
    steps = _cheapest_path(wanted, said)
    return Pairing(
        tuple(a.word for a, _ in steps if a is not None and a.word is not None),
        tuple(b.word for _, b in steps if b is not None and b.word is not None),
        (
            *_decisions("reference", [a for a, _ in steps if a is not None]),
            *_decisions("hypothesis", [b for _, b in steps if b is not None]),
        ),
    )


def _usual(side: str, slots: Sequence[Slot]) -> Iterator[Decision]:
    for slot in slots:
        if slot.readings[0].rule:
            yield Decision(side, slot.written, " ".join(slot.readings[0].words), slot.readings[0].rule)


def _decisions(side: str, arcs: Sequence[_Arc]) -> Iterator[Decision]:
    return (Decision(side, arc.written, arc.read, arc.rule) for arc in arcs if arc.rule)


def _graph(slots: Sequence[Slot]) -> _Graph:
    graph = _Graph()
    start = 0
    for slot in slots:
        last: list[_Arc] = []
        for price, reading in enumerate(slot.readings):
            node = start
            words: list[str | None] = list(reading.words) or [None]
            for position, word in enumerate(words):
                told = position == 0
                arc = _Arc(
                    node,
                    -1,
                    word,
                    price if told else 0,
                    slot.written if told else "",
                    " ".join(reading.words) if told else "",
                    reading.rule if told else "",
                )
                if position == len(words) - 1:
                    last.append(arc)
                else:
                    node = graph.node()
                    graph.ends[node].append(_ending_at(arc, node))
        start = graph.node()
        graph.ends[start].extend(_ending_at(arc, start) for arc in last)
    return graph


def _ending_at(arc: _Arc, end: int) -> _Arc:
    return _Arc(arc.start, end, arc.word, arc.price, arc.written, arc.read, arc.rule)


def _joined(graph: _Graph, words: frozenset[str]) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Runs of two to six words of a graph that, written as one, are among `words`: (first node, last node, run)."""
    prefixes = {word[:length] for word in words for length in range(1, len(word) + 1)}
    starts: dict[int, list[_Arc]] = {}
    for arc in graph.arcs():
        starts.setdefault(arc.start, []).append(arc)
    for first in range(len(graph.ends)):
        open_runs: list[tuple[int, tuple[str, ...]]] = [(first, ())]
        while open_runs:
            node, run = open_runs.pop()
            if len(run) > 1 and "".join(run) in words:
                yield first, node, run
            for arc in starts.get(node, ()) if len(run) < _MAX_JOINED else ():
                longer = run if arc.word is None else (*run, arc.word)
                if not longer or "".join(longer) in prefixes:
                    open_runs.append((arc.end, longer))


def _with_compounds(said: _Graph, wanted: _Graph) -> _Graph:
    """`said` with further ways to write its words: those of `wanted` that are the same letters."""
    ours = frozenset(arc.word for arc in wanted.arcs() if arc.word is not None)
    theirs = frozenset(arc.word for arc in said.arcs() if arc.word is not None)
    merges = {(start, end, run) for start, end, run in _joined(said, ours)}
    apart = {run for _, _, run in _joined(wanted, theirs)}
    splits = [(arc, run) for arc in said.arcs() for run in sorted(apart) if arc.word == "".join(run)]
    if not merges and not splits:
        return said
    # Nodes inside a split come between the two ends of an arc: number them again, by fractions of the old numbers.
    places: list[float] = [float(node) for node in range(len(said.ends))]
    arcs = list(said.arcs())
    for start, end, run in sorted(merges):
        arcs.append(_Arc(start, end, "".join(run), 1, " ".join(run), "".join(run), "compound"))
    for arc, run in splits:
        inner = [len(places) + offset for offset in range(len(run) - 1)]
        places.extend(arc.end - 1 + (offset + 1) / len(run) for offset in range(len(run) - 1))
        chain = [arc.start, *inner, arc.end]
        for position, word in enumerate(run):
            told = position == 0
            arcs.append(
                _Arc(
                    chain[position],
                    chain[position + 1],
                    word,
                    arc.price + 1 if told else 0,
                    "".join(run) if told else "",
                    " ".join(run) if told else "",
                    "compound" if told else "",
                )
            )
    order = sorted(range(len(places)), key=lambda node: (places[node], node))
    number = {node: position for position, node in enumerate(order)}
    graph = _Graph([[] for _ in order])
    for arc in arcs:
        start, end = number[arc.start], number[arc.end]
        graph.ends[end].append(_Arc(start, end, arc.word, arc.price, arc.written, arc.read, arc.rule))
    return graph


def _cheapest_path(wanted: _Graph, said: _Graph) -> list[tuple[_Arc | None, _Arc | None]]:
    """Pairs of arcs along the alignment with the fewest edits; None where only one side moves."""
    rows, columns = len(wanted.ends), len(said.ends)
    costs = [[0] * columns for _ in range(rows)]
    moves: list[list[tuple[_Arc | None, _Arc | None] | None]] = [[None] * columns for _ in range(rows)]
    for i in range(rows):
        for j in range(columns):
            if i == j == 0:
                continue
            best = -1
            move: tuple[_Arc | None, _Arc | None] | None = None
            for a in wanted.ends[i]:
                for b in said.ends[j]:
                    if a.word is None or b.word is None:
                        continue
                    cost = costs[a.start][b.start] + a.price + b.price + (_EDIT if a.word != b.word else 0)
                    if best < 0 or cost < best:
                        best, move = cost, (a, b)
            for a in wanted.ends[i]:
                cost = costs[a.start][j] + a.price + (_EDIT if a.word is not None else 0)
                if best < 0 or cost < best:
                    best, move = cost, (a, None)
            for b in said.ends[j]:
                cost = costs[i][b.start] + b.price + (_EDIT if b.word is not None else 0)
                if best < 0 or cost < best:
                    best, move = cost, (None, b)
            costs[i][j], moves[i][j] = best, move
    i, j = rows - 1, columns - 1
    steps: list[tuple[_Arc | None, _Arc | None]] = []
    while (step := moves[i][j]) is not None:
        steps.append(step)
        mine, theirs = step
        i, j = (mine.start if mine else i), (theirs.start if theirs else j)
    return steps[::-1]
