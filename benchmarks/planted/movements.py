"""Elements that are moved, or computed, more often than they need be."""

from .writer import Maker, Network, Planted, planted


def split_and_joined() -> Planted:
    """Halves of the channels are activated, joined, split and joined again."""
    given, rewritten = Network("given"), Network("rewritten")
    x = given.input("x", 1, 128, 56, 56)
    halves = given.several("Split", 2, x, axis=1, num_outputs=2)
    joined = given("Concat", *(given("Relu", half) for half in halves), axis=1)
    again = given.several("Split", 2, joined, axis=1, num_outputs=2)
    given.returns(given("Concat", *again, axis=1))
    rewritten.returns(rewritten("Relu", rewritten.input("x", 1, 128, 56, 56)))
    return planted("split, relu, concat, split, concat", "TASO", given, rewritten)


def three_parts() -> Planted:
    """Thirds of the channels are activated, and joined."""
    given, rewritten = Network("given"), Network("rewritten")
    thirds = given.several("Split", 3, given.input("x", 1, 96, 56, 56), axis=1, num_outputs=3)
    given.returns(given("Concat", *(given("Sigmoid", third) for third in thirds), axis=1))
    rewritten.returns(rewritten("Sigmoid", rewritten.input("x", 1, 96, 56, 56)))
    return planted("three parts, sigmoid, concat", "TASO, of more parts", given, rewritten)


def sigmoid_before_maximum() -> Planted:
    """A function that keeps the order of numbers, before a maximum of four."""
    given, rewritten = Network("given"), Network("rewritten")
    options = {"kernel_shape": [2, 2], "strides": [2, 2]}
    given.returns(given("MaxPool", given("Sigmoid", given.input("x", 1, 64, 56, 56)), **options))
    rewritten.returns(rewritten("Sigmoid", rewritten("MaxPool", rewritten.input("x", 1, 64, 56, 56), **options)))
    return planted("sigmoid, then max-pool", "lattice facts", given, rewritten)


PLANTED: tuple[Maker, ...] = (split_and_joined, three_parts, sigmoid_before_maximum)
