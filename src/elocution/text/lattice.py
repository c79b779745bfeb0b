"""Texts with several readings, and the pair of readings that differs least. Knows no language.

A text is a row of slots; a slot holds what is written and every way to read it aloud, the usual one first. A number, a
date or a symbol has several; most words have one. The slots of a text span a graph whose paths are the whole readings.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

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
    """A word, or nothing (None), of slot `slot`. `compound` is what stands there if other spelling is assumed."""

    end: int
    word: str | None
    slot: int
    price: int = 0
    compound: str = ""


@dataclass
class _Graph:
    """Arcs by their first node. Readings of a slot share their beginnings and endings."""

    starts: list[list[_Arc]] = field(default_factory=lambda: [[]])
    last: int = 0

    def node(self) -> int:
        self.starts.append([])
        return len(self.starts) - 1

    def arcs(self) -> Iterator[tuple[int, _Arc]]:
        for start, arcs in enumerate(self.starts):
            for arc in arcs:
                yield start, arc


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
    steps = _cheapest_path(wanted, _with_compounds(said, wanted))
    ours, theirs = ([arc for pair in steps if (arc := pair[side]) is not None] for side in (0, 1))
    return Pairing(
        tuple(arc.word for arc in ours if arc.word is not None),
        tuple(arc.word for arc in theirs if arc.word is not None),
        (*_decisions("reference", reference, ours), *_decisions("hypothesis", hypothesis, theirs)),
    )


def _usual(side: str, slots: Sequence[Slot]) -> Iterator[Decision]:
    for slot in slots:
        if slot.readings[0].rule:
            yield Decision(side, slot.written, " ".join(slot.readings[0].words), slot.readings[0].rule)


def _decisions(side: str, slots: Sequence[Slot], path: Sequence[_Arc]) -> Iterator[Decision]:
    at = 0
    while at < len(path):
        first = path[at]
        run = [first]
        while at + len(run) < len(path) and path[at + len(run)].slot == first.slot:
            run.append(path[at + len(run)])
        at += len(run)
        words = tuple(arc.word for arc in run if arc.word is not None)
        if first.compound:
            yield Decision(side, first.compound, " ".join(words), "compound")
            continue
        rule = next((reading.rule for reading in slots[first.slot].readings if reading.words == words), "")
        if rule:
            yield Decision(side, slots[first.slot].written, " ".join(words), rule)


def _graph(slots: Sequence[Slot]) -> _Graph:
    graph = _Graph()
    for index, slot in enumerate(slots):
        end = graph.node()
        readings = [reading.words for reading in slot.readings]
        _add_readings(graph, graph.last, end, index, frozenset(readings), readings[0], {})
        graph.last = end
    return graph


def _add_readings(
    graph: _Graph,
    start: int,
    end: int,
    slot: int,
    tails: frozenset[tuple[str, ...]],
    usual: tuple[str, ...] | None,
    known: dict[tuple[frozenset[tuple[str, ...]], tuple[str, ...] | None], int],
) -> None:
    """Arcs from `start` for what may follow there. To leave the `usual` reading costs 1; equal tails share a node."""
    if () in tails:
        graph.starts[start].append(_Arc(end, None, slot, 1 if usual else 0))
    for word in dict.fromkeys(tail[0] for tail in sorted(tails) if tail):
        rest = frozenset(tail[1:] for tail in tails if tail and tail[0] == word)
        stays = usual is not None and usual[:1] == (word,)
        price = 1 if usual is not None and not stays else 0
        following = usual[1:] if usual is not None and stays else None
        if rest == {()}:
            graph.starts[start].append(_Arc(end, word, slot, price))
            continue
        if (rest, following) not in known:
            known[rest, following] = graph.node()
            _add_readings(graph, known[rest, following], end, slot, rest, following, known)
        graph.starts[start].append(_Arc(known[rest, following], word, slot, price))


def _joined(graph: _Graph, words: frozenset[str]) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Runs of two to six words of a graph that, written as one, are among `words`: (first node, last node, run)."""
    prefixes = {word[:length] for word in words for length in range(1, len(word) + 1)}
    for first in range(len(graph.starts)):
        open_runs: list[tuple[int, tuple[str, ...]]] = [(first, ())]
        while open_runs:
            node, run = open_runs.pop()
            if len(run) > 1 and "".join(run) in words:
                yield first, node, run
            for arc in graph.starts[node] if len(run) < _MAX_JOINED else ():
                longer = run if arc.word is None else (*run, arc.word)
                if longer and "".join(longer) in prefixes:
                    open_runs.append((arc.end, longer))


def _with_compounds(said: _Graph, wanted: _Graph) -> _Graph:
    """`said` with further ways to write its words: those of `wanted` that are the same letters."""
    ours = frozenset(arc.word for _, arc in wanted.arcs() if arc.word is not None)
    theirs = frozenset(arc.word for _, arc in said.arcs() if arc.word is not None)
    merges = sorted(set(_joined(said, ours)))
    apart: dict[str, set[tuple[str, ...]]] = {}
    for _, _, run in _joined(wanted, theirs):
        apart.setdefault("".join(run), set()).add(run)
    splits = [(start, arc, run) for start, arc in said.arcs() for run in sorted(apart.get(arc.word or "", ()))]
    graph = _Graph([list(arcs) for arcs in said.starts], said.last)
    # A slot number of its own keeps the words of a compound together; no slot of the text is negative.
    slot = -1
    for start, end, run in merges:
        graph.starts[start].append(_Arc(end, "".join(run), slot, 1, " ".join(run)))
        slot -= 1
    for start, arc, run in splits:
        node = start
        for position, word in enumerate(run):
            end = arc.end if position == len(run) - 1 else graph.node()
            price = arc.price + 1 if position == 0 else 0
            graph.starts[node].append(_Arc(end, word, slot, price, "".join(run)))
            node = end
        slot -= 1
    return graph


def _cheapest_path(wanted: _Graph, said: _Graph) -> list[tuple[_Arc | None, _Arc | None]]:
    """Pairs of arcs along the alignment with the fewest edits; None where only one side moves.

    The search takes the cheapest pair of nodes next, so texts that are nearly the same are aligned in about linear time.
    """
    goal = (wanted.last, said.last)
    came_from: dict[tuple[int, int], tuple[tuple[int, int], tuple[_Arc | None, _Arc | None]]] = {}
    costs = {(0, 0): 0}
    done: set[tuple[int, int]] = set()
    queue: list[tuple[int, int, tuple[int, int]]] = [(0, 0, (0, 0))]
    while queue:
        cost, depth, pair = heappop(queue)
        if pair in done:
            continue
        if pair == goal:
            break
        done.add(pair)
        for target, price, step in _moves(pair, wanted.starts[pair[0]], said.starts[pair[1]]):
            if target not in costs or cost + price < costs[target]:
                costs[target] = cost + price
                came_from[target] = (pair, step)
                heappush(queue, (cost + price, depth - 1, target))  # among equals the furthest first
    steps = []
    pair = goal
    while pair != (0, 0):
        pair, step = came_from[pair]
        steps.append(step)
    return steps[::-1]


def _moves(
    pair: tuple[int, int], ours: Sequence[_Arc], theirs: Sequence[_Arc]
) -> Iterator[tuple[tuple[int, int], int, tuple[_Arc | None, _Arc | None]]]:
    """Steps from a pair of nodes: (next pair, price, arcs). Words side by side, then a deletion, then an insertion."""
    i, j = pair
    for a in ours:
        if a.word is None:
            continue
        for b in theirs:
            if b.word is not None:
                yield (a.end, b.end), a.price + b.price + (_EDIT if a.word != b.word else 0), (a, b)
    for a in ours:
        yield (a.end, j), a.price + (_EDIT if a.word is not None else 0), (a, None)
    for b in theirs:
        yield (i, b.end), b.price + (_EDIT if b.word is not None else 0), (None, b)
