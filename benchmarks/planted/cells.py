"""Recurrent cells, unrolled: products of all gates, or of all steps, are one."""

import numpy as np

from .writer import Maker, Network, Planted, matrix, planted, weights

WIDTH = 256
STEPS = 4


def recurrent_steps() -> Planted:
    """The inputs of all steps of a simple recurrent network are multiplied with one matrix."""
    w, u, b = matrix(0, WIDTH, WIDTH), matrix(1, WIDTH, WIDTH), weights(2, WIDTH)
    given, rewritten = Network("given"), Network("rewritten")
    xs, state = [given.input(f"x{step}", 1, WIDTH) for step in range(STEPS)], given.input("h", 1, WIDTH)
    for x in xs:
        total = given("Add", given("MatMul", x, w), given("MatMul", state, u))
        state = given("Tanh", given("Add", total, b))
    given.returns(state)
    xs, state = [rewritten.input(f"x{step}", 1, WIDTH) for step in range(STEPS)], rewritten.input("h", 1, WIDTH)
    shifted = rewritten("Add", rewritten("MatMul", rewritten("Concat", *xs, axis=0), w), b)
    parts = rewritten.several("Split", STEPS, shifted, np.array([1] * STEPS, np.int64), axis=0)
    for part in parts:
        state = rewritten("Tanh", rewritten("Add", part, rewritten("MatMul", state, u)))
    rewritten.returns(state)
    return planted("four RNN steps", "TASO (NasRNN)", given, rewritten)


def gates() -> Planted:
    """The gates of an LSTM cell, each with two products of its own."""
    ws, us = ([matrix(seed + start, WIDTH, WIDTH) for seed in range(4)] for start in (0, 4))
    given, rewritten = Network("given"), Network("rewritten")

    def state(network: Network, sums: list[str], c: str) -> tuple[str, str]:
        i, o, f = (network("Sigmoid", one) for one in sums[:3])
        cell = network("Add", network("Mul", f, c), network("Mul", i, network("Tanh", sums[3])))
        return network("Mul", o, network("Tanh", cell)), cell

    x, h, c = (given.input(name, 1, WIDTH) for name in "xhc")
    sums = [given("Add", given("MatMul", x, w), given("MatMul", h, u)) for w, u in zip(ws, us, strict=True)]
    given.returns(*state(given, sums, c))
    x, h, c = (rewritten.input(name, 1, WIDTH) for name in "xhc")
    both = np.concatenate([np.concatenate(ws, axis=1), np.concatenate(us, axis=1)])
    product = rewritten("MatMul", rewritten("Concat", x, h, axis=1), both)
    parts = rewritten.several("Split", 4, product, np.array([WIDTH] * 4, np.int64), axis=1)
    rewritten.returns(*state(rewritten, parts, c))
    return planted("LSTM gates", "TASO, TENSAT (NasRNN)", given, rewritten)


PLANTED: tuple[Maker, ...] = (recurrent_steps, gates)
