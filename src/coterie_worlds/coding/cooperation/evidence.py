"""Tests whether `main` needs the answers of `aux`, by replacing these answers.

    used(box, helper, function, "f", "", cases)     # {"used": True, "handed_on": False, "needed": True}

Each of the two runs in its own sandbox. Every call of aux goes through the host, which counts the calls and can replace
the answers. A test counts as *decided* by aux if main's result changes when aux's answers are replaced by other values
of their type and by those of the previous test. The work of aux must matter too: replacing its answers by its
arguments, or by empty values (an empty list, a zero), must also change results. Excluded are:

- Constants: an expression of main that had the same number, or took the same branch, in all tests keeps this value
  while answers are replaced. So a password, a required type, or a guard that always passes does not count.
- Results of main alone: if an expression of main equals the result, or aux's answer, with true and with replaced
  answers in every test that reaches it, those tests do not count. (The initial value of a loop is no such expression,
  since it may be an input that happens to be right.)
- Passing on: the result of every test is an answer of aux, or a fixed part of it, for main's own arguments. This also
  holds for another form of the answer (as text, as JSON, or negated), and where an expression of aux is the result in
  every test: then main only undoes what aux put on top.
- Echoes: answers of aux that only return what was asked; see `echo.py`.
- Codes: an expression of main that needs the answers of aux equals main's own arguments, whole or item by item, in
  every test. Then aux only wrote them in another way, and main has undone it; see `undone.py`.
- Masks: results are sums of aux's answer and of main's own part, which takes the answer off again; see `undone.py`.

All of this is ours; the published reward looks for patterns in text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from coterie.kernel.calls import InThread
from coterie.seeds import seed_of
from coterie_worlds.coding.cooperation.echo import echoes, turned
from coterie_worlds.coding.cooperation.reading import AUX, catches
from coterie_worlds.coding.cooperation.replaced import DISABLED, IDLE, OTHERS, Replacement, items_of
from coterie_worlds.coding.cooperation.runs import FEWEST, PairRun, Site, enough
from coterie_worlds.coding.cooperation.undone import Undone
from coterie_worlds.coding.cooperation.watched import Sites, watched
from coterie_worlds.sandbox import REMEMBERED, Box, pool, same
from coterie_worlds.sandbox.border import Message
from coterie_worlds.sandbox.duet import Duet, Exchange
from coterie_worlds.sandbox.remembered import by_itself
from coterie_worlds.sandbox.values import SEQUENCES, TABLES, acting, canonical, written

MOST_TOLD = 1 << 20
"""Maximum characters that the two say to each other in all tests: beyond, nothing is paid."""
MORE_CALLS = 50
"""Calls beyond twice as many as in truth that a test with other answers may make."""
AT_LOAD = -1
"""The place of no input: what main asks for while it is loaded."""


@InThread
def used(
    box: dict[str, Any],
    helper: str,
    function: str,
    name: str,
    preamble: str,
    cases: list[list[str]],
) -> dict[str, Any]:
    """Measures how far main's results depend on aux's answers.

    Args:
        helper, function: the programs of aux and main.
        name: main's function.
        preamble: stands before both.
        cases: pairs of JSON: arguments as `encode` writes them, and the value that is right; "" where the two as
            one program did not give it.

    Returns:
        used: aux decides enough of the passed tests. handed_on: main only hands on what aux answers. needed: some
        passed test fails where aux raises.
    """
    if not (by_itself(helper) and by_itself(function)):
        return dict(UNUSED)  # chance, a clock, the number of its process: it could tell that tests are played again
    key = json.dumps(["used", box, helper, function, name, preamble, cases])
    if (known := REMEMBERED.get(key)) is not None:
        return json.loads(known)
    eye = f"see_{seed_of('eye', function, helper):x}"
    text, sites = watched(function, eye)
    chosen = pool(Box.of(box))
    with chosen.worker() as caller, chosen.worker() as partner:
        texts = {"text": text, "other": helper, "watched": watched(helper, eye)[0]}
        texts = {which: f"{preamble}\n{program}" for which, program in texts.items()}
        duet = Duet(caller, partner, **texts, name=name, called=AUX, eye=eye)
        evidence = Evidence(duet, sites, [(json.loads(args), value) for args, value in cases])
        measured = evidence.found(catches=catches(function))
        if duet.dead:
            return dict(UNUSED)
    if not evidence.late:
        REMEMBERED.put(key, json.dumps(measured))
    return measured


UNUSED = {"used": False, "handed_on": False, "needed": False}


class Evidence:
    """The runs of a pair of programs, and what they show of aux's part in main's results.

    Args:
        duet, cases: as of `used`.
        sites: what may be held, by site, as `watched` gives them.
    """

    def __init__(self, duet: Duet, sites: Sites, cases: Sequence[tuple[list[Any], str]]) -> None:
        self.duet = duet
        self.late = False
        self.sites = sites
        self.inputs = [args for args, _ in cases]
        self.varied: set[int] = set()
        self.alone: set[int] = set()
        self.denied: set[tuple[int, tuple[int, ...]]] = set()
        """Values of sites that some run came by without the result: main does not have it there by itself."""
        self.informs = False
        """True if some result became another value, not a failure: what only must not be wrong tells main nothing."""
        self.replayed: dict[Replacement, PairRun] = {}
        self.true = PairRun([], [{}] * len(cases), set())
        self.true = self.run()
        self.passed = [
            at
            for at, ((_, wanted), played) in enumerate(zip(cases, self.true.played, strict=True))
            if wanted and same_as(json.loads(wanted), played)
        ]
        self.held = self.constants()

    def found(self, *, catches: bool) -> dict[str, Any]:
        """Returns the result of `used`. catches: main may go on where aux raises, so that has to be tried."""
        if len(self.results()) < FEWEST or self.told() > MOST_TOLD or self.echoes():
            return dict(UNUSED)
        uses = False
        for swap in OTHERS:
            uses = (uses and self.informs) or self.decides(swap, self.passed) or uses
        for swap in IDLE:
            if uses and enough(there := self.applies(swap), self.passed):
                uses = self.decides(swap, there)
        undone = Undone(self)
        uses = uses and self.informs and not undone.decodes() and not undone.unmasks()
        needed = bool(self.changes(self.run(lambda *_: DISABLED))) if catches else uses
        return {"used": uses, "handed_on": uses and (self.hands_on() or undone.solved()), "needed": needed}

    def told(self) -> int:
        """Returns the number of characters that aux was asked and answered in truth, as JSON."""
        told = [call for played in self.true.played for call in played.told]
        return sum(len(json.dumps([*call.args, *call.values])) for call in told)

    def echoes(self) -> bool:
        """Returns True if all that aux ever answers is nothing, or what it was given."""
        told = [call for at in self.passed for call in self.true.played[at].told if not acting(call.values[0])]
        silent = any(call.changes for call in told)  # what works on its arguments has to return nothing
        spoken = [call for call in told if not (silent and call.values[0] is None)]
        return echoes([call.args for call in spoken], [call.values[0] for call in spoken])

    def decides(self, swap: Replacement, among: Iterable[int]) -> bool:
        """Returns True if enough of main's results that are not its own change once aux's answers are replaced."""
        run = self.replay(swap)
        self.alone |= self.own(run)
        decided = (self.changes(run) & set(among)) - self.alone
        self.informs |= any(run.played[at].answer["status"] == "returned" for at in decided)
        return enough(decided, among)

    def replay(self, swap: Replacement) -> PairRun:
        """Returns a run of every input with aux's answers replaced."""
        if swap not in self.replayed:
            self.replayed[swap] = self.run(lambda at, *call: swap(self.before(at), *call), self.held)
        return self.replayed[swap]

    def applies(self, swap: Replacement) -> set[int]:
        """Returns the passed inputs in which some answer of aux would be another."""
        applying: set[int] = set()
        for at in self.passed:
            told = [said for said in self.true.played[at].told if not acting(said.values[0])]
            answers: list[Message] = [{"status": "returned", "value": said.values[0]} for said in told]
            swapped = [
                swap(self.before(at), *call)
                for call in zip(range(len(told)), (said.args for said in told), answers, strict=True)
            ]
            if any(answer != other for answer, other in zip(answers, swapped, strict=True)):
                applying.add(at)
        return applying

    def run(self, swap: Callable[..., Message] | None = None, held: Mapping[int, Any] | None = None) -> PairRun:
        """Plays every input.

        Args:
            swap: called with the input's place besides.
            held: what sites are, in inputs that came by them in truth.
        """
        holding = [{site: value for site, value in (held or {}).items() if site in seen} for seen in self.true.seen]
        played: list[Exchange] = []
        seen: list[dict[int, Site]] = []
        counts: list[dict[int, int]] = []
        others: dict[int, list[bool]] = {}

        def swapped(at: int, place: int, args: Sequence[Any], answer: Message) -> Message:
            assert swap is not None
            found = swap(at, place, args, answer)
            if answer["status"] == "returned" and not acting(answer["value"]):
                others.setdefault(at, []).append(found != answer)
            return found

        if not self.duet.begin(None if swap is None else partial(swapped, AT_LOAD)):
            return PairRun([Exchange(DISABLED)] * len(self.inputs), [{}] * len(self.inputs), set())
        for at, args in enumerate(self.inputs):
            self.duet.caller.look(holding[at])
            if swap is None:
                played.append(self.duet.play(args))
            else:
                most = MORE_CALLS + 2 * len(self.true.played[at].told)
                played.append(self.duet.play(args, partial(swapped, at), most))
            looked = self.duet.caller.look({})
            seen.append({site: (first, last) for site, _, _, first, last in looked})
            counts.append({site: count for site, _, count, _, _ in looked})
            self.varied |= {site for site, varied, *_ in looked if varied} if swap is None else set()
        self.late |= any(play.answer["status"] == "timeout" for play in played)
        loaded = others.pop(AT_LOAD, [])
        told = {at: loaded + others.get(at, []) for at in range(len(self.inputs))}
        return PairRun(played, seen, {at for at, found in told.items() if found and all(found)}, counts)

    def before(self, at: int) -> Sequence[Any]:
        """Returns the answers that aux gave in truth to the input before."""
        told = self.true.played[at - 1].told
        return [call.values[0] for call in told]

    def constants(self) -> dict[int, Any]:
        """Returns the sites that were the same in all tests that came by them, and what they were."""
        values: dict[int, list[Any]] = {}
        for seen in self.true.seen:
            for site, (first, _) in seen.items():
                values.setdefault(site, []).append(first)
        return {
            site: held[0]
            for site, held in values.items()
            if site not in self.varied and len(held) >= FEWEST and self.may_be_held(site, held)
        }

    def may_be_held(self, site: int, values: Sequence[Any]) -> bool:
        """Returns True if a site's values are one that can be held: a number, bool or None; a text where it steers.

        A loop that always goes on is left alone: held to that, it might never end.
        """
        role = self.sites.held.get(site)
        if role is None or (role == "repeats" and values[0]):
            return False
        kinds = (bool, int, float, type(None), *((str,) if role == "steers" else ()))
        return type(values[0]) in kinds and all(value == values[0] for value in values)

    def changes(self, run: PairRun) -> set[int]:
        """Returns the passed inputs whose result is another."""
        return {at for at in self.passed if not same_as(self.true.played[at].answer.get("value"), run.played[at])}

    def results(self) -> set[str]:
        """Returns the different results of passed inputs."""
        return {canonical(self.true.played[at].answer["value"]) for at in self.passed}

    def own(self, run: PairRun) -> set[int]:
        """Returns inputs that a run changes although main has the result, or aux's answer, whatever aux says."""
        replaced = run.replaced & set(self.passed)
        results = {at: (value := self.true.played[at].answer["value"], value) for at in replaced}
        told = {at: self.true.played[at].told for at in replaced}
        answers = {at: (calls[0].values[0], calls[-1].values[0]) for at, calls in told.items()}
        owned: set[int] = set()
        for wanted, places in ((results, ((0,), (1,))), (answers, ((0, 1),))):
            told_apart = {at: canonical(list(values)) for at, values in wanted.items()}
            for site in {site for seen in run.seen for site in seen}:
                came = {at for at in wanted if site in run.seen[at]}
                meant = {at for at in wanted if site in self.true.seen[at]}
                for ends in places:
                    if ends == (0,) and site in self.sites.passing:
                        continue
                    if wanted is results and not run.has(site, came, wanted, ends):
                        self.denied.add((site, ends))
                    has = all(either.has(site, came & meant, wanted, ends) for either in (run, self.true))
                    if not has or len({told_apart[at] for at in came & meant}) < FEWEST:
                        continue
                    owned |= came & meant
                    if (
                        wanted is results
                        and (site, ends) not in self.denied
                        and self.true.has(site, meant, results, ends)
                    ):
                        owned |= meant  # where a run does not come by it, aux only kept main from getting there
        return owned & self.changes(run)

    def hands_on(self) -> bool:
        """Returns True if every passed result is an answer of aux, or one place of it, to main's own arguments."""
        if not all(self.true.played[at].told for at in self.passed):
            return self.directly(self.passed)
        fixed, changed = self.fixed(), self.changed()
        places: set[tuple[Any, ...]] | None = None
        for at in self.passed:
            result = self.true.played[at].answer["value"]
            shared = {
                place
                for call in (*self.true.played[at].told, *self.true.played[at].drawn)
                if all(self.given(arg, at) or canonical(arg) in fixed for arg in call.args)
                for place in places_of(result, call.values)
                if place[0] in changed
            }
            places = shared if places is None else places & shared
        return bool(places) or self.directly(self.passed)

    def fixed(self) -> set[str]:
        """Returns the arguments that aux is given in every passed input."""
        each = [{canonical(arg) for call in self.true.played[at].told for arg in call.args} for at in self.passed]
        return set.intersection(*each) if each else set()

    def changed(self) -> set[int]:
        """Finds which values of calls aux has a part in: what it returns (0), and arguments that some call changes."""
        told = [call for at in self.passed for call in self.true.played[at].told]
        numbers = max((len(call.values) for call in told), default=0)
        return {0} | {at for at in range(1, numbers) if any(call.changes_at(at - 1) for call in told)}

    def given(self, arg: Any, at: int) -> bool:
        """Returns True if an argument of aux is one of main's, all of them, the length of one or a number as text."""
        mine = self.inputs[at]
        others = [len(items) for arg_of_main in mine if (items := items_of(arg_of_main)) is not None]
        texts = [written(arg_of_main) for arg_of_main in mine if type(arg_of_main) in (int, float)]
        return any(same(value, arg) for value in (*mine, mine, *others, *texts))

    def directly(self, passed: Iterable[int]) -> bool:
        """Returns True if aux alone gives every result, or one place of what it gives is it."""
        places: set[tuple[Any, ...]] | None = None
        for at in passed:
            result = self.true.played[at].answer["value"]
            shared = set(places_of(result, self.duet.directly(self.inputs[at])))
            places = shared if places is None else places & shared
        return bool(places)


def same_as(value: Any, played: Exchange) -> bool:
    """Returns True if a call returned this value."""
    return played.answer["status"] == "returned" and same(value, played.answer["value"])


def places_of(result: Any, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yields the places of a result in what aux gave: which value, where in it, and in which words."""
    for number, value in enumerate(values):
        for place, part in parts(value):
            yield from ((number, *place, way) for way, read in turned(part).items() if same(result, read))


def parts(value: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Returns a value and its parts, each with a place that no content moves: of a tuple, a list, or a dict by key."""
    inside: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    items = items_of(value) if not isinstance(value, str) else None
    if isinstance(value, dict) and next(iter(value)) in TABLES:
        inside += [((canonical(key),), item) for key, item in items or []]
    elif isinstance(value, list) or (isinstance(value, dict) and next(iter(value)) in SEQUENCES):
        inside += [((len(items or []), at), item) for at, item in enumerate(items or [])]
    return inside
