"""Architectures as torch's exporters write them: the list. `python -m benchmarks.exports` compiles and compares them.

Weights are random, configurations small: what counts is the graph, not the numbers. From torchvision, timm and
transformers, and by hand what is in none of them. `open` names the dimensions that an export leaves open, by input and
axis; `size` is the side of an image, the length of a text or the samples of a sound.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import detectors
from .zoo.libraries import transformers, vision

Inputs = tuple[Tensor, ...]
Open = tuple[Mapping[int, str], ...]
"""For each input, the names of its open dimensions by axis."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """How to make a network, and inputs for it at a given batch and size."""

    create: Callable[[], nn.Module]
    inputs: Callable[[int, int], Inputs]
    open: Open
    sizes: tuple[int, ...]
    """The first is that of the export; the others are run, too, if the size is open."""
    batches: tuple[int, ...] = (2, 1, 3)


BATCH: Open = ({0: "batch"},)
IMAGE: Open = ({0: "batch", 2: "height", 3: "width"},)
TEXT: Open = ({0: "batch", 1: "sequence"},)


def _pixels(batch: int, size: int) -> Inputs:
    """Wider than high, so that no two dimensions are mixed up."""
    return (torch.randn(batch, 3, size, size + 32),)


def _square(batch: int, size: int) -> Inputs:
    return (torch.randn(batch, 3, size, size),)


def _words(batch: int, size: int) -> Inputs:
    return (torch.randint(3, 99, (batch, size)),)


def _masked_words(batch: int, size: int) -> Inputs:
    lengths = torch.arange(batch)[:, None] % max(size - 1, 1)
    return torch.randint(3, 99, (batch, size)), (torch.arange(size)[None] < size - lengths).to(torch.int64)


def _two_texts(batch: int, size: int) -> Inputs:
    return torch.randint(3, 99, (batch, size)), torch.randint(3, 99, (batch, max(size // 2, 1)))


def _steps(batch: int, size: int) -> Inputs:
    return (torch.randn(batch, size, 16),)


def _sound(batch: int, size: int) -> Inputs:
    return (torch.randn(batch, size),)


def _spectrum(batch: int, size: int) -> Inputs:
    return (torch.randn(batch, 80, size),)


def _points(batch: int, size: int) -> Inputs:
    return (torch.randn(batch, 3, size),)


def _video(batch: int, size: int) -> Inputs:
    return (torch.randn(batch, 3, 4, size, size),)


def _one_picture(_: int, size: int) -> Inputs:
    return (detectors.picture(size, size + 32),)


class First(nn.Module):
    """A network of which one result counts: the first tensor in what it gives."""

    def __init__(self, network: nn.Module, *names: str, **options: object) -> None:
        super().__init__()
        self.network, self.names, self.options = network, names, options

    def forward(self, *inputs: Tensor) -> Tensor:
        if self.names:
            result = self.network(**dict(zip(self.names, inputs, strict=True)), **self.options)
        else:
            result = self.network(*inputs)
        while not isinstance(result, Tensor):
            result = next(iter(result.values())) if isinstance(result, dict) else result[0]
        return result


def _vision(name: str, **options: object) -> Callable[[], nn.Module]:
    return lambda: First(getattr(vision, name)(weights=None, **options))


def _segmentation(name: str) -> Callable[[], nn.Module]:
    return lambda: First(getattr(vision.segmentation, name)(weights=None, weights_backbone=None, num_classes=5))


def _timm(name: str, **options: object) -> Callable[[], nn.Module]:
    return lambda: importlib.import_module("timm").create_model(name, pretrained=False, **options)


_SMALL: Mapping[str, object] = {"vocab_size": 100, "attn_implementation": "eager", "pad_token_id": 0}
_LAYERS: Mapping[str, object] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


def _text(kind: str, config: str, *names: str, **options: object) -> Callable[[], nn.Module]:
    """A network of transformers for texts, small."""

    def create() -> nn.Module:
        made = getattr(transformers, config)(**{**_SMALL, **options})
        cache = {"use_cache": False} if getattr(made, "use_cache", None) is not None else {}
        return First(getattr(transformers, kind)(made), *(names or ("input_ids",)), **cache)

    return create


class Unet(nn.Module):
    """Ronneberger et al. 2015: the way up is resized to what comes from the left."""

    def __init__(self, by_size: bool) -> None:
        super().__init__()
        self.by_size = by_size
        self.down = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, 8), (8, 16), (16, 32))])
        self.up = nn.ModuleList([nn.Conv2d(a, b, 3, padding=1) for a, b in ((48, 16), (24, 8))])

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for position, layer in enumerate(self.down):
            x = functional.relu(layer(x if position == 0 else functional.max_pool2d(x, 2)))
            kept.append(x)
        for layer, beside in zip(self.up, kept[-2::-1], strict=True):
            if self.by_size:
                wide = functional.interpolate(x, size=beside.shape[2:], mode="bilinear", align_corners=False)
            else:
                wide = functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = functional.relu(layer(torch.cat([wide, beside], 1)))
        return x


class Resized(nn.Module):
    """Resized to a fixed side, and back to that of the input."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode, self.layer = mode, nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        aligned = None if self.mode == "nearest" else True
        small = functional.interpolate(x, size=(24, 40), mode=self.mode, align_corners=aligned)
        return functional.interpolate(self.layer(small), size=x.shape[2:], mode=self.mode, align_corners=aligned)


class Tagger(nn.Module):
    """A recurrence over a text."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.words, self.layer, self.last = nn.Embedding(100, 16), kind(16, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.layer(self.words(words))[0])


class Relative(nn.Module):
    """Attention with relative positions, shifted as in Transformer-XL (Dai et al. 2019), and a window from the end."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.places = nn.Linear(16, 16), nn.Parameter(torch.randn(128, 16))

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, _ = x.shape
        scores = self.query(x) @ self.places[: 2 * steps - 1].T
        padded = functional.pad(scores, (1, 0))
        shifted = padded.reshape(batch, 2 * steps, steps)[:, 1:].reshape(batch, steps, 2 * steps - 1)[..., :steps]
        return torch.softmax(shifted, -1) @ x


class Causal(nn.Module):
    """Dilated causal convolutions (van den Oord et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(16, 16, 3, dilation=2**n) for n in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)
        for layer in self.layers:
            x = x + torch.tanh(layer(functional.pad(x, (2 * layer.dilation[0], 0))))
        return x.transpose(1, 2)


class Padded(nn.Module):
    """Windows of 8 x 8 over an image that is padded to whole ones, as window attention has them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        batch, depth, height, width = x.shape
        x = functional.pad(x, (0, -width % 8, 0, -height % 8))
        rows, columns = x.shape[2] // 8, x.shape[3] // 8
        windows = x.reshape(batch, depth, rows, 8, columns, 8).permute(0, 2, 4, 3, 5, 1)
        mixed = self.layer(torch.softmax(windows.reshape(-1, 64, depth), 1))
        back = mixed.reshape(batch, rows, columns, 8, 8, depth).permute(0, 5, 1, 3, 2, 4)
        return back.reshape(batch, depth, rows * 8, columns * 8)[:, :, :height, :width]


class Sharper(nn.Module):
    """Super-resolution by sub-pixels (Shi et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 12, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        return functional.pixel_shuffle(self.layers(x), 2)


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def _point_net() -> nn.Module:
    layers = (nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1), nn.AdaptiveMaxPool1d(1))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 5))


def _images(*names: str) -> dict[str, Architecture]:
    return {name: Architecture(_vision(name), _pixels, IMAGE, (64, 96, 128)) for name in names}


def _of_timm(shape: Open, *names: str, size: int = 224) -> dict[str, Architecture]:
    is_open = shape is IMAGE
    sizes = (64, 96, 128) if is_open else (size,)
    return {name: Architecture(_timm(name), _pixels if is_open else _square, shape, sizes) for name in names}


def _texts(**made: tuple[str, str, Mapping[str, object]]) -> dict[str, Architecture]:
    return {
        name: Architecture(_text(kind, config, **options), _words, TEXT, (12, 7, 33))
        for name, (kind, config, options) in made.items()
    }


_GPT: Mapping[str, object] = {"n_embd": 32, "n_layer": 2, "n_head": 4}
_GROUPED: Mapping[str, object] = {**_LAYERS, "num_key_value_heads": 2}
_SOUND: Mapping[str, object] = {
    **_LAYERS,
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "attn_implementation": "eager",
}
_BOTH: Open = (TEXT[0], TEXT[0])
_SEQUENCES: Open = (TEXT[0], {0: "batch", 1: "target"})
_T5: Mapping[str, object] = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_BART: Mapping[str, object] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}


def _of_sound(kind: str, config: str) -> Callable[[], nn.Module]:
    return lambda: First(getattr(transformers, kind)(getattr(transformers, config)(**_SOUND)), "input_values")


def _whisper() -> nn.Module:
    options = {**_BART, **_SMALL, "max_source_positions": 50, "num_mel_bins": 80, "decoder_start_token_id": 1}
    model = transformers.WhisperModel(transformers.WhisperConfig(**options, bos_token_id=1, eos_token_id=2))
    return First(model.encoder, "input_features")


def _segformer() -> nn.Module:
    options = {"hidden_sizes": (8, 16, 24, 32), "depths": (1, 1, 1, 1), "num_attention_heads": (1, 2, 2, 4)}
    model = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(**options))
    return First(model, "pixel_values")


class Quiet(First):
    """A network without noise: what it draws is 0."""

    def forward(self, *inputs: Tensor) -> Tensor:
        drawn, torch.randn_like = torch.randn_like, torch.zeros_like
        try:
            return super().forward(*inputs)
        finally:
            torch.randn_like = drawn


def _vits() -> nn.Module:
    options = {**_LAYERS, "ffn_dim": 64, "vocab_size": 100, "flow_size": 32, "spectrogram_bins": 33}
    sizes = {"upsample_initial_channel": 32, "use_stochastic_duration_prediction": False, "noise_scale": 0.0}
    del options["intermediate_size"]
    return Quiet(transformers.VitsModel(transformers.VitsConfig(**options, **sizes)), "input_ids")


ARCHITECTURES: Mapping[str, Architecture] = {
    **_images(
        "alexnet",
        "vgg11_bn",
        "resnet18",
        "resnext50_32x4d",
        "squeezenet1_1",
        "densenet121",
        "shufflenet_v2_x0_5",
        "mobilenet_v2",
        "mobilenet_v3_small",
        "mnasnet0_5",
        "efficientnet_b0",
        "regnet_y_400mf",
        "convnext_tiny",
        "swin_t",
        "swin_v2_t",
    ),
    "googlenet": Architecture(_vision("googlenet", init_weights=False, aux_logits=False), _pixels, IMAGE, (64, 96)),
    "vit_b_32": Architecture(_vision("vit_b_32"), _square, BATCH, (224,)),
    "maxvit_t": Architecture(_vision("maxvit_t"), _square, BATCH, (224,)),
    "r3d_18": Architecture(
        lambda: vision.video.r3d_18(weights=None), _video, ({0: "batch", 3: "height", 4: "width"},), (32, 48)
    ),
    "fcn_resnet50": Architecture(_segmentation("fcn_resnet50"), _pixels, IMAGE, (64, 96)),
    "deeplabv3_mobilenet": Architecture(_segmentation("deeplabv3_mobilenet_v3_large"), _pixels, IMAGE, (64, 96)),
    "lraspp": Architecture(_segmentation("lraspp_mobilenet_v3_large"), _pixels, IMAGE, (64, 96)),
    **{
        name: Architecture(partial(detectors.detector, name), _one_picture, ({1: "height", 2: "width"},), (128, 160))
        for name in detectors.NAMES
    },
    **_of_timm(
        IMAGE,
        "ghostnet_100",
        "hrnet_w18_small",
        "dla34",
        "res2net50_14w_8s",
        "repvgg_a0",
        "rexnet_100",
        "nf_regnet_b0",
        "poolformer_s12",
        "edgenext_xx_small",
        "mobilevit_xxs",
        "fastvit_t8",
        "focalnet_tiny_srf",
    ),
    **_of_timm(
        BATCH,
        "vit_tiny_patch16_224",
        "deit_tiny_distilled_patch16_224",
        "beit_base_patch16_224",
        "mixer_s32_224",
        "resmlp_12_224",
        "gmlp_ti16_224",
        "levit_128s",
        "pvt_v2_b0",
        "xcit_nano_12_p16_224",
        "coat_tiny",
    ),
    "crossvit_tiny_240": Architecture(_timm("crossvit_tiny_240"), _square, BATCH, (240,)),
    **_texts(
        bert=("BertModel", "BertConfig", _LAYERS),
        albert=("AlbertModel", "AlbertConfig", {**_LAYERS, "embedding_size": 16}),
        electra=("ElectraModel", "ElectraConfig", {**_LAYERS, "embedding_size": 16}),
        roberta=("RobertaModel", "RobertaConfig", _LAYERS),
        mpnet=("MPNetModel", "MPNetConfig", _LAYERS),
        deberta=("DebertaV2Model", "DebertaV2Config", {**_LAYERS, "relative_attention": True, "pos_att_type": ["c2p"]}),
        xlnet=("XLNetModel", "XLNetConfig", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
        gpt2=("GPT2Model", "GPT2Config", _GPT),
        gpt_neo=(
            "GPTNeoModel",
            "GPTNeoConfig",
            {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
        ),
        gpt_neox=("GPTNeoXModel", "GPTNeoXConfig", _LAYERS),
        opt=("OPTModel", "OPTConfig", {**_LAYERS, "ffn_dim": 64, "word_embed_proj_dim": 32}),
        llama=("LlamaModel", "LlamaConfig", _GROUPED),
        qwen2=("Qwen2Model", "Qwen2Config", _GROUPED),
        gemma=("GemmaModel", "GemmaConfig", {**_GROUPED, "head_dim": 8}),
        phi=("PhiModel", "PhiConfig", _GROUPED),
        mixtral=(
            "MixtralModel",
            "MixtralConfig",
            {**_GROUPED, "num_local_experts": 4, "experts_implementation": "batched_mm"},
        ),
        t5_encoder=("T5EncoderModel", "T5Config", _T5),
    ),
    "distilbert": Architecture(
        _text("DistilBertModel", "DistilBertConfig", "input_ids", "attention_mask", dim=32, n_layers=2, n_heads=4),
        _masked_words,
        _BOTH,
        (12, 7, 33),
    ),
    "t5": Architecture(
        _text("T5Model", "T5Config", "input_ids", "decoder_input_ids", **_T5), _two_texts, _SEQUENCES, (12, 8, 34)
    ),
    "bart": Architecture(
        _text("BartModel", "BartConfig", "input_ids", "decoder_input_ids", **_BART), _two_texts, _SEQUENCES, (12, 8, 34)
    ),
    "whisper_encoder": Architecture(_whisper, _spectrum, BATCH, (100,)),
    "wav2vec2": Architecture(_of_sound("Wav2Vec2Model", "Wav2Vec2Config"), _sound, TEXT, (1000, 777, 2000)),
    "hubert": Architecture(_of_sound("HubertModel", "HubertConfig"), _sound, TEXT, (1000, 777, 2000)),
    "segformer": Architecture(_segformer, _pixels, IMAGE, (64, 96, 128)),
    "vits": Architecture(_vits, _words, TEXT, (12, 7, 33)),
    "unet_by_size": Architecture(lambda: Unet(by_size=True), _pixels, IMAGE, (64, 37, 50)),
    "unet_by_scale": Architecture(lambda: Unet(by_size=False), _pixels, IMAGE, (64, 32, 96)),
    "resized_bilinear": Architecture(lambda: Resized("bilinear"), _pixels, IMAGE, (64, 37, 50)),
    "resized_nearest": Architecture(lambda: Resized("nearest"), _pixels, IMAGE, (64, 37, 50)),
    "lstm_tagger": Architecture(lambda: Tagger(nn.LSTM), _words, TEXT, (12, 7, 33)),
    "gru_tagger": Architecture(lambda: Tagger(nn.GRU), _words, TEXT, (12, 7, 33)),
    "relative_attention": Architecture(Relative, _steps, TEXT, (12, 7, 33)),
    "causal_convolutions": Architecture(Causal, _steps, TEXT, (12, 7, 33)),
    "padded_windows": Architecture(Padded, _pixels, IMAGE, (64, 37, 50)),
    "super_resolution": Architecture(Sharper, _pixels, IMAGE, (64, 37, 50)),
    "encoder": Architecture(_encoder, _steps, TEXT, (12, 7, 33)),
    "point_net": Architecture(_point_net, _points, ({0: "batch", 2: "points"},), (12, 7, 33)),
}
