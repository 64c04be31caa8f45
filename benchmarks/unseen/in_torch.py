"""The programs in PyTorch, as its users write them. Needs torch. Arguments are those of programs.py."""

from collections.abc import Sequence

import torch
import torch.nn.functional as nn
from torch import Tensor


def capsules(x: Tensor, w: Tensor) -> Sequence[Tensor]:
    windows = x.unfold(0, 3, 2).unfold(1, 3, 2)
    return [torch.einsum("yxcikrs,rscokj->yxoij", windows, w)]


def norms(x: Tensor) -> Sequence[Tensor]:
    return [torch.linalg.vector_norm(x, dim=1), torch.linalg.vector_norm(x)]


def dilated_conv3d(x: Tensor, w: Tensor) -> Sequence[Tensor]:
    return [nn.conv3d(x[None], w, dilation=2)[0]]


def attention_scores(q: Tensor, k: Tensor) -> Sequence[Tensor]:
    scores = q.transpose(0, 1) @ k.permute(1, 2, 0) * q.shape[2] ** -0.5
    return [scores.softmax(-1)]


def lstm_cell(x: Tensor, h: Tensor, c: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Sequence[Tensor]:
    gates = nn.linear(x, w.flatten(0, 1), b.flatten()) + nn.linear(h, u.flatten(0, 1))
    i, f, g, o = gates.chunk(4, 1)
    cell = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return [o.sigmoid() * cell.tanh(), cell]


def stencil2d(x: Tensor) -> Sequence[Tensor]:
    for _ in range(2):
        sides = x[:-2, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1]
        corners = x[:-2, :-2] + x[:-2, 2:] + x[2:, :-2] + x[2:, 2:]
        x = 0.25 * x[1:-1, 1:-1] + 0.125 * sides + 0.0625 * corners
    return [x]


def wave3d(now: Tensor, before: Tensor, speed: Tensor) -> Sequence[Tensor]:
    def along(axis: int) -> Tensor:
        line = now
        for other in {0, 1, 2} - {axis}:
            line = line.narrow(other, 2, size)
        near = line.narrow(axis, 1, size) + line.narrow(axis, 3, size)
        far = line.narrow(axis, 0, size) + line.narrow(axis, 4, size)
        return (4 / 3) * near - (1 / 12) * far - 2.5 * line.narrow(axis, 2, size)

    size = before.shape[0]
    return [2 * now[2:-2, 2:-2, 2:-2] - before + speed * (along(0) + along(1) + along(2))]


def triangular_solves(a: Tensor, b: Tensor) -> Sequence[Tensor]:
    """Written out: `torch.linalg.solve_triangular` calls LAPACK for each matrix, and is slower."""
    solved: list[Tensor] = []
    for row in range(a.shape[1]):
        rest = b[:, row]
        for column, known in enumerate(solved):
            rest = rest - a[:, row, column, None] * known
        solved.append(rest / a[:, row, row, None])
    return [torch.stack(solved, 1)]


def correlation(left: Tensor, right: Tensor) -> Sequence[Tensor]:
    size = left.shape[1]
    windows = right.unfold(1, size, 1).unfold(2, size, 1)
    return [(left[:, None, None] * windows).mean(0)]


def bilinear(x: Tensor, w: Tensor, y: Tensor) -> Sequence[Tensor]:
    return [nn.bilinear(x, y, w)]


def distances(x: Tensor, y: Tensor) -> Sequence[Tensor]:
    return [torch.cdist(x, y)]


def separable(x: Tensor, w: Tensor, v: Tensor) -> Sequence[Tensor]:
    deep = nn.conv2d(x[None], w[:, None], groups=len(w)).clamp(0, 6)
    return [nn.conv2d(deep, v[:, :, None, None])[0]]


def group_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Sequence[Tensor]:
    return [nn.silu(nn.group_norm(x.flatten(1, 2), x.shape[1], gamma.flatten(), beta.flatten())).view(x.shape)]


def grouped_residual(x: Tensor, w: Tensor) -> Sequence[Tensor]:
    convolved = nn.conv2d(x.flatten(0, 1)[None], w.flatten(0, 1), groups=len(w))[0]
    return [nn.relu(convolved.unflatten(0, w.shape[:2]) + x[:, :, 1:-1, 1:-1])]


def gram(x: Tensor) -> Sequence[Tensor]:
    return [x @ x.T / x.shape[1]]


def causal_pooling(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Sequence[Tensor]:
    near, weight = bias.exp().tril(), k.exp()
    return [q.sigmoid() * (near @ (weight * v)) / (near @ weight)]
