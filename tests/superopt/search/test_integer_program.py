"""Plans, against all subsets of options, and against Z3's optimizer over another program."""

import random
from itertools import combinations

import pytest
import z3

from tilewright.superopt.search.choices import Option, Plan, Problem, cost_of, greedy, makeable, plan_of
from tilewright.superopt.search.integer_program import cheapest


def drawn(seed: int, things: int, options: int) -> Problem:
    """What can be made, and options besides that make several things, or make things of each other in circles."""
    draw = random.Random(seed)
    listed = [
        Option(draw.randint(0, 9), tuple(draw.sample(range(thing), min(thing, draw.randint(0, 2)))), (thing,))
        for thing in range(things)
    ]
    for _ in range(options):
        reads, makes = (
            draw.sample(range(things), draw.randint(0, 2)),
            draw.sample(range(things), draw.choice([1, 1, 2])),
        )
        listed.append(Option(draw.randint(0, 9), tuple(reads), tuple(makes)))
    draw.shuffle(listed)
    return Problem(tuple(listed), tuple({things - 1, draw.randrange(things)}))


def is_sound(problem: Problem, plan: Plan) -> bool:
    """Whether all that is wanted, or read, has an option that makes it, and nothing is made of itself."""
    made: set[int] = set()
    for _ in plan:
        made |= {t for t, number in plan.items() if made.issuperset(problem.options[number].reads)}
    fits = all(thing in problem.options[number].makes for thing, number in plan.items())
    return fits and made == set(plan) and made.issuperset(problem.wanted)


def least_of_all(problem: Problem) -> float:
    """The cost of the cheapest subset of options that makes what is wanted."""
    numbers = range(len(problem.options))
    subsets = (chosen for count in range(len(numbers) + 1) for chosen in combinations(numbers, count))
    return min(
        sum(problem.options[number].cost for number in chosen)
        for chosen in subsets
        if makeable(problem, chosen).issuperset(problem.wanted)
    )


def least_by_z3(problem: Problem) -> float:
    """With a level for each thing: what is read for it lies below."""
    solver = z3.Optimize()
    taken = [z3.Bool(f"o{number}") for number in range(len(problem.options))]
    by = {(t, n): z3.Bool(f"t{t}o{n}") for n, option in enumerate(problem.options) for t in option.makes}
    things = {thing for option in problem.options for thing in (*option.reads, *option.makes)}
    level = {thing: z3.Int(f"l{thing}") for thing in things}

    def is_made(thing: int) -> z3.BoolRef:
        return z3.Or([made for (other, _), made in by.items() if other == thing])

    for thing in problem.wanted:
        solver.add(is_made(thing))
    for (thing, number), made in by.items():
        solver.add(z3.Implies(made, taken[number]))
        for read in problem.options[number].reads:
            solver.add(z3.Implies(made, z3.And(is_made(read), level[read] < level[thing])))
    total = z3.Sum([z3.If(t, int(option.cost), 0) for t, option in zip(taken, problem.options, strict=True)])
    solver.minimize(total)
    assert solver.check() == z3.sat
    return float(solver.model().eval(total).as_long())


@pytest.mark.parametrize("seed", range(20))
def test_the_cheapest_plan_of_all(seed: int) -> None:
    problem = drawn(seed, things=6, options=6)
    simple = greedy(problem)
    assert simple is not None and is_sound(problem, simple)
    found = cheapest(problem, simple, seconds=60)
    assert found.is_proven and is_sound(problem, found.plan)
    assert cost_of(problem, found.plan) == least_of_all(problem) <= cost_of(problem, simple)


@pytest.mark.parametrize("seed", range(20))
def test_the_cheapest_plan_by_another_solver(seed: int) -> None:
    problem = drawn(seed, things=15, options=25)
    simple = greedy(problem)
    assert simple is not None and is_sound(problem, simple)
    found = cheapest(problem, simple, seconds=60)
    assert found.is_proven and is_sound(problem, found.plan)
    assert cost_of(problem, found.plan) == least_by_z3(problem) <= cost_of(problem, simple)


def test_what_is_shared_is_paid_once() -> None:
    """Each of two things alone is cheaper made directly; together, they share what is expensive."""
    options = (
        Option(5, (), (0,)),
        Option(1, (0,), (1,)),
        Option(1, (0,), (2,)),
        Option(4, (), (1,)),
        Option(4, (), (2,)),
    )
    problem = Problem(options, (1, 2))
    simple = greedy(problem)
    assert simple is not None and cost_of(problem, simple) == 8
    assert cost_of(problem, cheapest(problem, simple, seconds=60).plan) == 7


def test_circles_are_cut() -> None:
    """Two things are free, if each is made of the other."""
    options = Option(0, (1,), (0,)), Option(0, (0,), (1,)), Option(3, (), (0,)), Option(2, (), (1,))
    problem = Problem(options, (0,))
    found = cheapest(problem, {0: 2}, seconds=5)
    assert found.plan == {0: 0, 1: 3} and found.cuts > 0 and found.is_proven


def test_a_thing_may_be_made_twice() -> None:
    """Each of two options makes something that only an expensive one makes besides, and both make a third thing."""
    options = (
        Option(1, (), (0, 1)),
        Option(1, (), (0, 2)),
        Option(5, (), (1,)),
        Option(5, (), (2,)),
        Option(5, (), (0,)),
    )
    problem = Problem(options, (0, 1, 2))
    found = cheapest(problem, {0: 4, 1: 2, 2: 3}, seconds=60)
    assert cost_of(problem, found.plan) == 2 and is_sound(problem, found.plan)


def test_without_time_nothing_is_worse_than_before() -> None:
    problem = drawn(0, things=60, options=200)
    simple = greedy(problem)
    assert simple is not None
    found = cheapest(problem, simple, seconds=0)
    assert cost_of(problem, found.plan) <= cost_of(problem, simple) and is_sound(problem, found.plan)


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_units_do_not_matter(unit: float) -> None:
    problem = drawn(4, things=15, options=25)
    scaled = Problem(tuple(Option(o.cost * unit, o.reads, o.makes) for o in problem.options), problem.wanted)
    simple, start = greedy(scaled), greedy(problem)
    assert simple is not None and start is not None
    least = cost_of(problem, cheapest(problem, start, seconds=60).plan)
    assert cost_of(scaled, cheapest(scaled, simple, seconds=60).plan) == pytest.approx(least * unit)


def test_what_can_not_be_made() -> None:
    problem = Problem((Option(1, (1,), (0,)), Option(1, (0,), (1,))), (0,))
    assert greedy(problem) is None and plan_of(problem, (0, 1)) is None
