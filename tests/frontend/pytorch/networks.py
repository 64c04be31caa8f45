"""Small modules of PyTorch, and the line of a statement in this file."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn


def line(text: str) -> str:
    """``networks.py:12``: where the statement ``text`` stands."""
    number = next(n for n, code in enumerate(Path(__file__).read_text().splitlines(), 1) if code.strip() == text)
    return f"networks.py:{number}"


def seeded(module: nn.Module) -> nn.Module:
    """The module for inference, with weights that do not depend on what ran before."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return module.eval()


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x))).softmax(-1)


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=8)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(image).mean((2, 3)))


class Attention(nn.Module):
    """Two inputs and two outputs, one of them under a name that is given."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embed(ids)
        y, _ = self.attention(x, x, x, key_padding_mask=mask == 0)
        return y, y.mean(1)


class Recurrence(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(16, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return -x


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x[0])
        return x + self.count


class Updating(nn.Module):
    """Batch normalization in training mode, which PyTorch's exporter writes as that for inference."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, variance = torch.zeros(16), torch.ones(16)
        return nn.functional.batch_norm(x, mean, variance, training=True)


class Random(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.randn_like(x)
        return x + noise


@torch.library.custom_op("tilewright_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Foreign(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return torch.ops.tilewright_tests.twice(y)


class Windows(nn.Module):
    """Attention within windows of 3 x 3 places, shifted along axes that have several, as in Swin (Liu et al. 2021)."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.mix = nn.Linear(depth, 3 * depth)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, depth = x.shape
        y = nn.functional.pad(x, (0, 0, 0, -width % 3, 0, -height % 3))
        rows, columns = y.shape[1] // 3, y.shape[2] // 3
        shifts = [int(size > 3) for size in y.shape[1:3]]
        y = torch.roll(y, [-shift for shift in shifts], (1, 2))
        y = y.view(batch, rows, 3, columns, 3, depth).permute(0, 1, 3, 2, 4, 5).reshape(-1, 9, depth)
        q, k, v = self.mix(y).chunk(3, -1)
        y = torch.softmax(q @ k.transpose(-2, -1), -1) @ v
        y = y.view(batch, rows, columns, 3, 3, depth).permute(0, 1, 3, 2, 4, 5)
        y = torch.roll(y.reshape(batch, rows * 3, columns * 3, depth), shifts, (1, 2))
        return x + y[:, :height, :width].contiguous()


class WindowsOfWindows(nn.Module):
    """Windows of an image, and of pairs of its places, whose number is padded to an even one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Windows(3), Windows(12)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.first(image.permute(0, 2, 3, 1))
        x = nn.functional.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        pairs = [x[:, row::2, column::2] for row in (0, 1) for column in (0, 1)]
        return self.second(torch.cat(pairs, -1))
