"""Networks that no library has, as the papers on deep-learning compilers describe them. Shapes are at batch N."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from .libraries import nasnet, transformers


def mlp() -> nn.Module:
    """Four dense layers on a flattened image: [N, 784] -> [N, 10], probabilities."""
    widths = (784, 512, 512, 256)
    hidden = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(256, 10), nn.Softmax(-1))


def dqn() -> nn.Module:
    """Q-values of 18 actions from four frames: [N, 4, 84, 84] -> [N, 18] (Mnih et al., Nature 2015)."""
    convolutions = (nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3))
    features = [layer for convolution in convolutions for layer in (convolution, nn.ReLU())]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 18))


def dcgan() -> nn.Module:
    """Generator of images: [N, 100, 1, 1] -> [N, 3, 64, 64] (Radford et al., 2016)."""
    layers: list[nn.Module] = []
    channels = (100, 512, 256, 128, 64)
    for i, o in pairwise(channels):
        stride, padding = (1, 0) if i == 100 else (2, 1)
        layers += [nn.ConvTranspose2d(i, o, 4, stride, padding, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh())


class LanguageModel(nn.Module):
    """Two LSTM layers of 650 units and the next word's scores: [steps, N, 650] -> [N, 10000] (Zaremba et al., 2014)."""

    def __init__(self, units: int = 650, words: int = 10000) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(units, units, num_layers=2)
        self.scores = nn.Linear(units, words)
        for name, parameter in self.recurrent.named_parameters():
            nn.init.normal_(parameter, std=0.1 if "bias" in name else 2 * units**-0.5)

    def forward(self, embedded: Tensor) -> Tensor:
        return self.scores(self.recurrent(embedded)[0][-1])


class NasRnn(nn.Module):
    """The recurrent cell of Zoph and Le (2017), five steps: [steps, N, 512], [N, 512] -> [N, 512].

    As in TASO's examples: eight products of input and of state per cell, weights shared by the steps. The first
    state is an input: from a constant one, products could be computed ahead.
    """

    def __init__(self, units: int = 512) -> None:
        super().__init__()
        self.units = units
        self.of_input = nn.ParameterList(torch.randn(units, units) * units**-0.5 for _ in range(8))
        self.of_state = nn.ParameterList(torch.randn(units, units) * units**-0.5 for _ in range(8))

    def forward(self, inputs: Tensor, state: Tensor) -> Tensor:
        for step in inputs.unbind(0):
            state = self._cell(step, state)
        return state

    def _cell(self, step: Tensor, state: Tensor) -> Tensor:
        t = [step @ w + state @ u for w, u in zip(self.of_input, self.of_state, strict=True)]
        first = torch.relu(t[0]) + torch.sigmoid(t[3])
        second = torch.sigmoid(t[1]) + torch.tanh(t[2])
        third = torch.sigmoid(t[4]) * torch.tanh(t[5])
        fourth = torch.sigmoid(t[6]) * torch.relu(t[7])
        left = torch.tanh(torch.sigmoid(second) + torch.tanh(third))
        return torch.tanh(left * torch.tanh(torch.tanh(first) * torch.tanh(fourth)))


class NasNetMobile(nasnet.NASNetALarge):
    """NASNet-A (4 @ 1056), [N, 3, 224, 224] -> [N, 1000] (Zoph et al., 2018).

    Four cells a stage, where the large one has six.
    """

    def __init__(self) -> None:
        super().__init__(stem_size=32, num_features=1056)
        for name in ("cell_4", "cell_5", "cell_10", "cell_11", "cell_16", "cell_17"):
            delattr(self, name)

    def forward_features(self, x: Tensor) -> Tensor:
        stem = self.conv0(x)
        before = self.cell_stem_0(stem)
        now = self.cell_stem_1(stem, before)
        for stage, reduction in ((0, self.reduction_cell_0), (6, self.reduction_cell_1), (12, None)):
            for index in range(stage, stage + 4):
                before, now = now, getattr(self, f"cell_{index}")(now, before)
            if reduction is not None:
                now = reduction(now, before)
        return self.act(now)


class Encoder(nn.Module):
    """A BERT encoder: token numbers and mask [N, tokens] -> hidden states [N, tokens, hidden] (Devlin et al., 2019).

    The additive mask is made here, in four dimensions, which keeps the library's own making of masks out of the file.
    """

    def __init__(self, layers: int, hidden: int) -> None:
        super().__init__()
        config = transformers.BertConfig(
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=12,
            intermediate_size=4 * hidden,
            attn_implementation="eager",
        )
        self.bert = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        dtype = self.bert.embeddings.LayerNorm.weight.dtype
        additive = (1.0 - attention_mask.to(dtype))[:, None, None, :] * -10000.0
        return self.bert(input_ids=input_ids, attention_mask=additive, return_dict=False)[0]
