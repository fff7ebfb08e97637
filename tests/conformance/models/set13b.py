"""Models of speech, detection, quantization, states and text, as their owners write them."""
# ruff: noqa: D102, D107 - each docstring says what is special

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn


def _mel_filters(bins: int, bands: int, rate: int) -> Tensor:
    """Return triangular filters, with bands that are equally wide in mel."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, bands + 2) / 2595) - 1)
    frequencies = torch.linspace(0, rate / 2, bins)
    rising = (frequencies - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - frequencies) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)


class PcenKeywords(nn.Module):
    """Spots keywords: each mel band is divided by its average, which decays over the frames (PCEN)."""

    window: Tensor
    filters: Tensor

    def __init__(self, size: int = 256, bands: int = 20, rate: int = 8000, keywords: int = 6) -> None:
        super().__init__()
        self.size, self.hop, self.smoothing = size, size // 2, 0.1
        self.register_buffer("window", torch.hann_window(size))
        self.register_buffer("filters", _mel_filters(size // 2 + 1, bands, rate))
        self.log_gain = nn.Parameter(torch.full((bands, 1), math.log(0.98)))
        self.log_bias = nn.Parameter(torch.full((bands, 1), math.log(2.0)))
        self.log_power = nn.Parameter(torch.full((bands, 1), math.log(0.5)))
        self.layers = nn.Sequential(
            nn.Conv1d(bands, 24, 5, padding=2), nn.BatchNorm1d(24), nn.ReLU(), nn.Conv1d(24, 24, 3, padding=1)
        )
        self.attention, self.head = nn.Linear(24, 1), nn.Linear(24, keywords)

    def forward(self, wave: Tensor) -> Any:
        spectrum = torch.stft(wave, self.size, self.hop, window=self.window, center=True, return_complex=True)
        energy = self.filters @ spectrum.abs().square()
        steps = torch.arange(energy.shape[2], device=wave.device)
        age = steps[:, None] - steps
        decay = (1 - self.smoothing) ** age.clamp(min=0).to(energy.dtype) * (age >= 0)
        weights = decay * torch.where(steps == 0, 1.0, self.smoothing)
        average = energy @ weights.t()
        gain, bias, power = self.log_gain.exp(), self.log_bias.exp(), self.log_power.exp()
        normalized = (energy * (average + 1e-6) ** -gain + bias) ** power - bias**power
        hidden = self.layers(normalized).relu().transpose(1, 2)
        attention = self.attention(hidden).softmax(1)
        return {"keywords": self.head((attention * hidden).sum(1)), "attention": attention.squeeze(2)}


class SincResampler(nn.Module):
    """Mixes two channels and resamples them from 24 to 16 kHz by windowed sincs; the length is rounded up."""

    kernel: Tensor

    def __init__(self, original: int = 3, new: int = 2, zeros: int = 6, rolloff: float = 0.99) -> None:
        super().__init__()
        self.original, self.new = original, new
        base = min(original, new) * rolloff
        self.width = math.ceil(zeros * original / base)
        taps = torch.arange(-self.width, self.width + original, dtype=torch.float64) / original
        times = (taps - torch.arange(new, dtype=torch.float64)[:, None] / new) * base
        times = times.clamp(-zeros, zeros)
        window = torch.cos(times * math.pi / zeros / 2) ** 2
        kernel = torch.sinc(times) * window * (base / original)
        self.register_buffer("kernel", kernel[:, None].float())

    def forward(self, stereo: Tensor) -> Any:
        mono = stereo.mean(1)
        padded = F.pad(mono[:, None], (self.width, self.width + self.original))
        phases = F.conv1d(padded, self.kernel, stride=self.original)
        length = math.ceil(self.new * mono.shape[1] / self.original)
        resampled = phases.transpose(1, 2).flatten(1)[:, :length]
        peak = resampled.abs().amax(1)
        level = 20 * torch.log10(resampled.square().mean(1).sqrt() + 1e-7)
        return {"resampled": resampled, "peak": peak, "level": level}


class BiquadStream(nn.Module):
    """An equalizer of three biquads for chunks of 32 samples; the state of each filter is an input and an output."""

    def __init__(self, rate: float = 16000.0) -> None:
        super().__init__()
        sections = []
        for frequency, gain_db, q in ((120.0, 4.0, 0.7), (1800.0, -6.0, 1.1), (5200.0, 3.0, 0.9)):
            amplitude, angle = 10 ** (gain_db / 40), 2 * math.pi * frequency / rate
            alpha = math.sin(angle) / (2 * q)
            a0 = 1 + alpha / amplitude
            numerator = [1 + alpha * amplitude, -2 * math.cos(angle), 1 - alpha * amplitude]
            denominator = [-2 * math.cos(angle), 1 - alpha / amplitude]
            sections.append([value / a0 for value in numerator + denominator])
        self.sections = sections
        self.attack, self.release = 0.2, 0.01

    def forward(self, chunk: Tensor, filters: Tensor, envelope: Tensor) -> Any:
        samples = list(chunk.unbind(1))
        states = []
        for index, (b0, b1, b2, a1, a2) in enumerate(self.sections):
            first, second = filters[:, index, 0], filters[:, index, 1]
            filtered = []
            for sample in samples:
                out = b0 * sample + first
                first = b1 * sample - a1 * out + second
                second = b2 * sample - a2 * out
                filtered.append(out)
            samples = filtered
            states.append(torch.stack([first, second], dim=1))
        levels, level = [], envelope
        for sample in samples:
            rate = torch.where(sample.abs() > level, self.attack, self.release)
            level = level + rate * (sample.abs() - level)
            levels.append(level)
        gains = 1 / torch.stack(levels, dim=1).clamp(min=1.0)
        return torch.stack(samples, dim=1) * gains, torch.stack(states, dim=1), level


class TransducerStep(nn.Module):
    """One step of a transducer: after a blank, the states of the predictor stay as they are."""

    def __init__(self, tokens: int = 32, width: int = 24, layers: int = 2, blank: int = 0) -> None:
        super().__init__()
        self.blank = blank
        self.embedding = nn.Embedding(tokens, width)
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.encoded, self.predicted = nn.Linear(20, 40), nn.Linear(width, 40, bias=False)
        self.out = nn.Linear(40, tokens)

    def forward(self, frame: Tensor, symbol: Tensor, last: Tensor, hidden: Tensor, cell: Tensor) -> Any:
        keep = (symbol == self.blank)[:, None]
        x = self.embedding(symbol)
        hiddens, cells = [], []
        for index, (layer, norm) in enumerate(zip(self.cells, self.norms, strict=True)):
            new_hidden, new_cell = layer(x, (hidden[:, index], cell[:, index]))
            hiddens.append(torch.where(keep, hidden[:, index], new_hidden))
            cells.append(torch.where(keep, cell[:, index], new_cell))
            x = x + norm(new_hidden)
        prediction = torch.where(keep, last, x)
        logits = self.out(torch.tanh(self.encoded(frame) + self.predicted(prediction)))
        return {
            "log_probs": logits.log_softmax(-1),
            "next_symbol": logits.argmax(-1),
            "next_last": prediction,
            "next_hidden": torch.stack(hiddens, dim=1),
            "next_cell": torch.stack(cells, dim=1),
        }


class MaskDecoder(nn.Module):
    """Masks for clicks on an image, as in SAM: label 1 is inside, 0 is outside, and -1 is padding."""

    directions: Tensor

    def __init__(self, width: int = 16, masks: int = 3) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.register_buffer("directions", torch.randn(2, width // 2))
        self.outside, self.inside = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))
        self.padding = nn.Parameter(torch.randn(width))
        self.tokens = nn.Parameter(torch.randn(masks + 1, width))
        self.to_image = nn.MultiheadAttention(width, 2, batch_first=True)
        self.to_tokens = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.upscale = nn.Sequential(nn.ConvTranspose2d(width, 8, 2, 2), nn.GELU(), nn.ConvTranspose2d(8, 4, 2, 2))
        self.hyper = nn.ModuleList(nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 4)) for _ in range(3))
        self.quality = nn.Linear(width, masks)

    def _encoded(self, places: Tensor) -> Tensor:
        phases = (2 * places - 1) @ self.directions * (2 * math.pi)
        return torch.cat([phases.sin(), phases.cos()], dim=-1)

    def forward(self, features: Tensor, points: Tensor, labels: Tensor) -> Any:
        batch, width, height, columns = features.shape
        kinds = labels[..., None]
        clicks = torch.where(kinds == 1, self.inside, torch.where(kinds == 0, self.outside, self.padding))
        clicks = clicks + self._encoded(points) * (kinds >= 0)
        tokens = torch.cat([self.tokens.expand(batch, -1, -1), clicks], dim=1)
        y = (torch.arange(height, device=features.device) + 0.5) / height
        x = (torch.arange(columns, device=features.device) + 0.5) / columns
        grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)
        image = features.flatten(2).transpose(1, 2)
        positions = self._encoded(grid).flatten(0, 1)
        attended, _ = self.to_image(tokens, image + positions, image)
        tokens = self.norms[0](tokens + attended)
        attended, _ = self.to_tokens(image + positions, tokens, tokens)
        image = self.norms[1](image + attended)
        upscaled = self.upscale(image.transpose(1, 2).reshape(batch, width, height, columns))
        weights = torch.stack([layer(tokens[:, 1 + i]) for i, layer in enumerate(self.hyper)], dim=1)
        masks = torch.einsum("bmc,bchw->bmhw", weights, upscaled)
        quality = self.quality(tokens[:, 0])
        best = quality.argmax(1)
        chosen = masks[torch.arange(batch, device=best.device), best]
        return {"mask": chosen, "quality": quality, "area": (chosen > 0).float().mean((1, 2))}


class MatrixNms(nn.Module):
    """Lowers the scores of masks that overlap with better ones of their class, for all pairs at once (SOLOv2)."""

    def __init__(self, before: int = 8, after: int = 4, sigma: float = 2.0) -> None:
        super().__init__()
        self.before, self.after, self.sigma = before, after, sigma

    @staticmethod
    def _at(values: Tensor, places: Tensor) -> Tensor:
        return values.gather(1, places[..., None].expand(-1, -1, values.shape[2]))

    def forward(self, masks: Tensor, logits: Tensor, labels: Tensor) -> Any:
        height, width = masks.shape[2:]
        top, order = logits.topk(self.before, dim=1)
        soft = self._at(masks.flatten(2), order)
        labels = labels.gather(1, order)
        binary = (soft > 0).float()
        areas = binary.sum(2)
        common = binary @ binary.transpose(1, 2)
        overlap = common / (areas[:, :, None] + areas[:, None] - common).clamp(min=1)
        same = labels[:, :, None] == labels[:, None]
        overlap = (overlap * same).triu(diagonal=1)
        covered = overlap.amax(1)
        decay = self.sigma * (covered[:, :, None].square() - overlap.square())
        lowered = F.logsigmoid(top) + decay.amin(1)
        certainty = (soft.sigmoid() * binary).sum(2) / areas.clamp(min=1)
        scores, places = (lowered + (certainty + 1e-6).log()).topk(self.after, dim=1)
        return {
            "scores": scores,
            "classes": labels.gather(1, places),
            "best_masks": self._at(binary, places).bool().view(-1, self.after, height, width),
        }


class _Int4Linear(nn.Module):
    """A layer in the format of GPTQ: eight weights of four bits in an int32, with scales and zeros of groups."""

    shifts: Tensor
    packed: Tensor
    zeros: Tensor
    scales: Tensor
    groups: Tensor

    def __init__(self, inputs: int, outputs: int, group: int = 16) -> None:
        super().__init__()
        weight = (torch.randn(inputs, outputs) / math.sqrt(inputs)).view(-1, group, outputs)
        low, high = weight.amin(1), weight.amax(1)
        scales = ((high - low) / 15).half()
        zeros = (-low / scales.float()).round().clamp(1, 15)
        codes = (weight / scales.float()[:, None] + zeros[:, None]).round().clamp(0, 15).flatten(0, 1)
        self.register_buffer("shifts", torch.arange(0, 32, 4, dtype=torch.int32))
        self.register_buffer("packed", self._packed(codes.view(-1, 8, outputs).transpose(1, 2)))
        self.register_buffer("zeros", self._packed((zeros - 1).view(-1, outputs // 8, 8)))
        self.register_buffer("scales", scales)
        self.register_buffer("groups", torch.arange(inputs) // group)

    def _packed(self, codes: Tensor) -> Tensor:
        return (codes.long() << self.shifts.long()).sum(-1).to(torch.int32)

    def forward(self, x: Tensor) -> Any:
        codes = ((self.packed[:, None] >> self.shifts[None, :, None]) & 15).flatten(0, 1)
        zeros = ((self.zeros[..., None] >> self.shifts) & 15).flatten(1) + 1
        weight = self.scales.float()[self.groups] * (codes - zeros[self.groups])
        return x @ weight


class Int4Block(nn.Module):
    """A gated block of a language model, whose three layers have weights of four bits."""

    def __init__(self, width: int = 32, inner: int = 64) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.gate, self.up = _Int4Linear(width, inner), _Int4Linear(width, inner)
        self.down = _Int4Linear(inner, width)

    def forward(self, hidden: Tensor) -> Any:
        normed = self.norm(hidden)
        return hidden + self.down(F.silu(self.gate(normed)) * self.up(normed))


class _Commands(nn.Module):
    """Recognizes commands in mel frames: a convolution, a block with a residual, and a mean over time."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, (4, 3), padding=(0, 1), stride=(4, 1)), nn.BatchNorm2d(8), nn.ReLU())
        self.depth = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU())
        self.point = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8))
        self.head = nn.Linear(40, 6)

    def forward(self, mel: Tensor) -> Any:
        x = self.stem(mel.unsqueeze(1))
        x = torch.relu(x + self.point(self.depth(x)))
        return self.head(x.mean(3).flatten(1))


def fx_commands() -> nn.Module:
    """Return the recognizer after static quantization of its graph (FX), calibrated on random frames."""
    from torch.ao.quantization import quantize_fx  # noqa: PLC0415 - only this model needs it

    torch.manual_seed(5)
    model = _Commands().eval()
    mapping = torch.ao.quantization.get_default_qconfig_mapping("fbgemm")
    prepared = quantize_fx.prepare_fx(model, mapping, (torch.randn(2, 20, 30),))
    with torch.no_grad():
        for _ in range(8):
            prepared(torch.randn(8, 20, 30))
    converted: nn.Module = quantize_fx.convert_fx(prepared)
    return converted


class ViterbiTags(nn.Module):
    """Tags 12 tokens: an LSTM in both directions, and the best path of a CRF up to the length of each row."""

    def __init__(self, vocabulary: int = 80, tags: int = 5, width: int = 16) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.emissions = nn.Linear(2 * width, tags)
        self.start, self.end = nn.Parameter(torch.randn(tags)), nn.Parameter(torch.randn(tags))
        self.transitions = nn.Parameter(torch.randn(tags, tags))

    def forward(self, tokens: Tensor, lengths: Tensor) -> Any:
        steps = tokens.shape[1]
        mask = torch.arange(steps, device=tokens.device) < lengths[:, None]
        emissions = self.emissions(self.lstm(self.embedding(tokens * mask))[0]) * 4
        score = self.start + emissions[:, 0]
        history = []
        for step in range(1, steps):
            paths = score[:, :, None] + self.transitions
            best, places = paths.max(dim=1)
            score = torch.where(mask[:, step, None], best + emissions[:, step], score)
            history.append(places)
        total, tag = (score + self.end).max(dim=1)
        tags = [torch.where(mask[:, -1], tag, -1)]
        for step in range(steps - 2, -1, -1):
            before = history[step].gather(1, tag[:, None]).squeeze(1)
            tag = torch.where(mask[:, step + 1], before, tag)
            tags.append(torch.where(mask[:, step], tag, -1))
        return {"tags": torch.stack(tags[::-1], dim=1), "score": total}


class BeamOfThree(nn.Module):
    """Five steps of a beam search with three beams; a beam that ends is only extended by further ends."""

    def __init__(self, vocabulary: int = 30, width: int = 16, beams: int = 3, steps: int = 5) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.vocabulary, self.beams, self.steps, self.start, self.end = vocabulary, beams, steps, 0, 1
        self.embedding = nn.Embedding(vocabulary, width)
        self.cell = nn.GRUCell(width, width)
        self.out = nn.Linear(width, vocabulary)
        nn.init.normal_(self.out.weight)

    def forward(self, encoded: Tensor) -> Any:
        batch = encoded.shape[0]
        state = encoded.repeat_interleave(self.beams, dim=0)
        token = torch.full((batch * self.beams,), self.start, device=encoded.device)
        first = torch.arange(self.beams, device=encoded.device) == 0
        scores = torch.where(first, 0.0, -torch.inf).expand(batch, -1)
        ended = torch.zeros(batch, self.beams, dtype=torch.bool, device=encoded.device)
        lengths = torch.zeros(batch, self.beams, device=encoded.device)
        only_end = torch.where(torch.arange(self.vocabulary, device=encoded.device) == self.end, 0.0, -torch.inf)
        sequences = token.new_zeros(batch, self.beams, 0)
        for _ in range(self.steps):
            state = self.cell(self.embedding(token), state)
            log_probs = self.out(state).log_softmax(-1).view(batch, self.beams, -1)
            log_probs = torch.where(ended[..., None], only_end, log_probs)
            scores, places = (scores[..., None] + log_probs).flatten(1).topk(self.beams, dim=1)
            beam, chosen = places // self.vocabulary, places % self.vocabulary
            rows = (torch.arange(batch, device=beam.device)[:, None] * self.beams + beam).flatten()
            state, token = state[rows], chosen.flatten()
            was_ended = ended.gather(1, beam)
            lengths = lengths.gather(1, beam) + (~was_ended).float()
            ended = was_ended | (chosen == self.end)
            earlier = sequences.gather(1, beam[..., None].expand(-1, -1, sequences.shape[2]))
            sequences = torch.cat([earlier, chosen[..., None]], dim=2)
        return {"sequences": sequences, "scores": scores / lengths**0.7, "ended": ended}


class PointerGenerator(nn.Module):
    """A step of a summarizer, which copies words of the source; numbers from 50 are words outside the vocabulary."""

    def __init__(self, vocabulary: int = 50, unknown: int = 8, width: int = 24) -> None:
        super().__init__()
        self.vocabulary, self.extended = vocabulary, vocabulary + unknown
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.memory, self.query = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.coverage = nn.Parameter(torch.randn(width) * 0.1)
        self.energy = nn.Linear(width, 1, bias=False)
        self.cell = nn.GRUCell(2 * width, width)
        self.copy, self.out = nn.Linear(3 * width, 1), nn.Linear(2 * width, vocabulary)

    def _within_vocabulary(self, ids: Tensor) -> Tensor:
        return torch.where(ids < self.vocabulary, ids, 1)

    def forward(self, source: Tensor, previous: Tensor, context: Tensor, state: Tensor, covered: Tensor) -> Any:
        batch = source.shape[0]
        words, last = self.embedding(self._within_vocabulary(source)), self.embedding(self._within_vocabulary(previous))
        new_state = self.cell(torch.cat([last, context], dim=1), state)
        energy = self.memory(words) + self.query(new_state)[:, None] + covered[..., None] * self.coverage
        energy = self.energy(torch.tanh(energy)).squeeze(2)
        attention = energy.masked_fill(source == 0, torch.finfo(energy.dtype).min).softmax(1)
        new_context = (attention[:, None] @ words).squeeze(1)
        mixed = torch.cat([new_state, new_context], dim=1)
        generate = torch.sigmoid(self.copy(torch.cat([mixed, last], dim=1)))
        probabilities = F.pad(generate * self.out(mixed).softmax(1), (0, self.extended - self.vocabulary))
        offsets = torch.arange(batch, device=source.device)[:, None] * self.extended
        flat = probabilities.flatten().scatter_add(
            0, (source + offsets).flatten(), ((1 - generate) * attention).flatten()
        )
        return {
            "log_probs": (flat.view(batch, self.extended) + 1e-9).log(),
            "new_context": new_context,
            "new_state": new_state,
            "new_covered": covered + attention,
        }


class ProposalBudget(nn.Module):
    """Decodes proposals; all images of a batch share a budget of 100, which the best positive scores use."""

    anchors: Tensor

    def __init__(self, budget: int = 100, anchors: int = 20, size: float = 128.0) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.budget, self.size = budget, size
        centers, sizes = torch.rand(anchors, 2) * size, torch.rand(anchors, 2) * 40 + 10
        self.register_buffer("anchors", torch.cat([centers, sizes], dim=1))

    def forward(self, deltas: Tensor, logits: Tensor) -> Any:
        centers = self.anchors[:, :2] + deltas[..., :2] * self.anchors[:, 2:]
        sizes = self.anchors[:, 2:] * deltas[..., 2:].clamp(max=4.0).exp()
        boxes = torch.cat([centers - sizes / 2, centers + sizes / 2], dim=2).clamp(0, self.size)
        flat = logits.flatten()
        lowest = flat.topk(min(self.budget, flat.shape[0])).values[-1]
        chosen = (logits > 0) & (logits >= lowest)
        return {
            "boxes": boxes * chosen[..., None],
            "scores": logits.masked_fill(~chosen, -1e4),
            "number": chosen.sum(1),
        }


class RoisOfImages(nn.Module):
    """Classifies regions: the first column of a region is the index of its image in the batch."""

    def __init__(self, channels: int = 8, cells: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.cells = cells
        self.refine = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())
        self.hidden = nn.Linear(channels * cells * cells, 32)
        self.scores, self.deltas = nn.Linear(32, classes + 1), nn.Linear(32, 4 * classes)

    def forward(self, features: Tensor, rois: Tensor) -> Any:
        height, width = features.shape[2:]
        images, boxes = rois[:, 0].long(), rois[:, 1:]
        steps = (torch.arange(self.cells, device=rois.device) + 0.5) / self.cells
        x = boxes[:, :1] + (boxes[:, 2:3] - boxes[:, :1]) * steps
        y = boxes[:, 1:2] + (boxes[:, 3:4] - boxes[:, 1:2]) * steps
        x, y = 2 * x / width - 1, 2 * y / height - 1
        grid = torch.stack([x[:, None].expand(-1, self.cells, -1), y[:, :, None].expand(-1, -1, self.cells)], dim=-1)
        pooled = F.grid_sample(self.refine(features)[images], grid, align_corners=False)
        hidden = self.hidden(pooled.flatten(1)).relu()
        return self.scores(hidden), self.deltas(hidden)


def features_and_rois(batch: int, height: int, width: int, rois: int, seed: int = 0) -> dict[str, Tensor]:
    """Return features of images, and regions within them."""
    noise = torch.Generator().manual_seed(seed)
    images = torch.randint(0, batch, (rois, 1), generator=noise).float()
    corners = torch.rand(rois, 2, generator=noise) * torch.tensor([width, height]) * 0.6
    sizes = torch.rand(rois, 2, generator=noise) * torch.tensor([width, height]) * 0.3 + 1
    return {
        "features": torch.randn(batch, 8, height, width, generator=noise),
        "rois": torch.cat([images, corners, corners + sizes], dim=1),
    }


class RelativeLengths(nn.Module):
    """An embedding of a voice: lengths are relative to the longest row of the batch, as in SpeechBrain."""

    def __init__(self, bands: int = 12, channels: int = 16, width: int = 10) -> None:
        super().__init__()
        self.frames = nn.Sequential(nn.Conv1d(bands, channels, 3, padding=1), nn.ReLU(), nn.BatchNorm1d(channels))
        self.attention = nn.Sequential(nn.Conv1d(channels, 8, 1), nn.Tanh(), nn.Conv1d(8, channels, 1))
        self.embedding = nn.Linear(2 * channels, width)

    def forward(self, mel: Tensor, lengths: Tensor) -> Any:
        time = mel.shape[1]
        relative = lengths / lengths.amax()
        mask = (torch.arange(time, device=mel.device) < (relative * time).round()[:, None])[:, None]
        frames = self.frames(mel.transpose(1, 2))
        weights = self.attention(frames).masked_fill(~mask, -1e9).softmax(2)
        mean = (weights * frames).sum(2)
        deviation = ((weights * frames.square()).sum(2) - mean.square()).clamp(min=1e-6).sqrt()
        return F.normalize(self.embedding(torch.cat([mean, deviation], dim=1)), dim=1)


class KeptEmbedding(nn.Module):
    """Segments an image by clicks; the embedding of an image is kept for further clicks on an image of its size."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=4), nn.GELU(), nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(3, width)
        )
        self.click = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, width))
        self.embedding: Tensor | None = None
        self.image_shape: torch.Size | None = None

    def forward(self, image: Tensor, click: Tensor) -> Any:
        if self.embedding is None or image.shape != self.image_shape:
            self.embedding, self.image_shape = self.encoder(image), image.shape
        prompt = self.click(click)
        logits = torch.einsum("bchw,bc->bhw", self.embedding, prompt)
        mask = F.interpolate(logits[:, None], scale_factor=4.0, mode="bilinear", align_corners=False)
        return {"mask": mask.squeeze(1), "share": (mask > 0).float().mean((1, 2, 3))}


class MedianOfSpeech(nn.Module):
    """Detects speech in mel frames; SciPy removes single frames by a median over five of them."""

    def __init__(self, bands: int = 12, width: int = 16) -> None:
        super().__init__()
        self.gru = nn.GRU(bands, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, mel: Tensor) -> Any:
        import scipy.ndimage  # type: ignore[import-untyped] # noqa: PLC0415 - the other models do not need it

        hidden, _ = self.gru(mel - mel.mean(1, keepdim=True))
        logits = self.head(hidden).squeeze(2)
        smooth = scipy.ndimage.median_filter(logits.detach().cpu().numpy(), size=(1, 5), mode="nearest")
        smooth = torch.from_numpy(smooth).to(logits.device)
        return {"logits": smooth, "speech": (smooth > 0).float().mean(1)}


class _Topics(nn.Module):
    """Classifies a text by the mean of its words."""

    def __init__(self, words: int = 200, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, ids: Tensor) -> Any:
        mask = (ids != 0).float()[..., None]
        return self.layers((self.words(ids) * mask).sum(1) / mask.sum(1).clamp(min=1))


def quantized_words() -> nn.Module:
    """Return the classifier with a table of words in 8 bits, by which its owner saves most of the memory."""
    torch.manual_seed(9)
    ao: Any = torch.ao.quantization
    model = _Topics().eval()
    model.words.qconfig = ao.float_qparams_weight_only_qconfig
    prepared: nn.Module = ao.prepare(model)
    converted: nn.Module = ao.convert(prepared)
    return converted


class SpeakerAffinity(nn.Module):
    """Refines voices of segments by their neighbors; distances are roots of squares that are not clamped."""

    def __init__(self, width: int = 16, speakers: int = 4) -> None:
        super().__init__()
        self.project = nn.Linear(width, width)
        self.log_scale = nn.Parameter(torch.tensor(-0.5))
        self.head = nn.Linear(width, speakers)

    def forward(self, segments: Tensor) -> Any:
        voices = F.normalize(self.project(segments), dim=2)
        squares = voices.square().sum(2)
        products = voices @ voices.transpose(1, 2)
        distances = (squares[:, :, None] + squares[:, None] - 2 * products).sqrt()
        affinity = torch.softmax(-distances / self.log_scale.exp(), dim=2)
        refined = affinity @ voices
        return {"speakers": self.head(refined), "affinity": affinity}
