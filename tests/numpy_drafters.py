"""Block drafters in NumPy, float64, one attention weight at a time: what the networks must equal."""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def visible(config, layer: int, row: int, context: int, key: int) -> bool:
    """Tell whether block row `row` sees key `key`: the first `context` keys are committed positions, then the block."""
    sliding = (config.layer_types or ["full_attention"] * (layer + 1))[layer] == "sliding_attention"
    causal = sliding if config.is_causal is None else config.is_causal
    if key >= context:
        return key - context <= row or not causal
    return not sliding or context + row - key < config.sliding_window


class NumpyDrafter:
    """One-shot forward passes: no cache, every context row projected anew."""

    def __init__(self, config, tensors, *, table, head, scale: float = 1.0) -> None:
        self.config, self.t = config, {name: np.array(value, dtype=np.float64) for name, value in tensors.items()}
        self.table = self.t.get("embed_tokens.weight", np.array(table, dtype=np.float64))
        self.head = self.t.get("lm_head.weight", np.array(head, dtype=np.float64))
        gemma = self.get("family") == "gemma4"
        own = config.hidden_size**0.5 if gemma else 1.0
        self.scale = (own if "embed_tokens.weight" in self.t else scale) * (config.input_embedding_scale or 1.0)
        self.gemma = gemma

    def get(self, name: str, default=None):
        """Return a setting, or the default where this kind has none."""
        return getattr(self.config, name, default)

    def hidden(self, block, taps) -> Array:
        """Return final hidden states [B, H] of block ids [B] after taps [P, T·H]."""
        config = self.config
        context = self.norm(np.asarray(taps, np.float64) @ self.t["fc.weight"].T, "hidden_norm")
        x = self.table[np.asarray(block)] * self.scale
        for layer in range(config.num_hidden_layers):
            x = self.gemma_layer(x, context, layer) if self.gemma else self.layer(x, context, layer)
        return self.norm(x, "norm")

    def logits(self, hidden: Array) -> Array:
        """Return logits [n, V] of hidden states [n, H]."""
        found = hidden @ self.head.T * self.config.output_multiplier
        cap = self.config.final_logit_softcapping
        return np.tanh(found / cap) * cap if cap else found

    def layer(self, x: Array, context: Array, layer: int) -> Array:
        """Map block rows [B, H] through a layer, between its convolutions where it has any."""
        for side, norm in (("attention", "input_layernorm"), ("mlp", "post_attention_layernorm")):
            rows = self.norm(x, f"layers.{layer}.{norm}")
            given = self.convolved(rows, rows, layer, side, 0)
            made = self.attention(given, context, layer) if side == "attention" else self.mlp(given, layer)
            x = x + self.convolved(made, rows, layer, side, 1)
        return x

    def gemma_layer(self, x: Array, context: Array, layer: int) -> Array:
        """Map block rows [B, H] through a Gemma 4 layer."""
        at = f"layers.{layer}."
        made = self.attention(self.norm(x, at + "input_layernorm"), context, layer)
        x = x + self.norm(made, at + "post_attention_layernorm")
        made = self.mlp(self.norm(x, at + "pre_feedforward_layernorm"), layer)
        return (x + self.norm(made, at + "post_feedforward_layernorm")) * self.t[at + "layer_scalar"]

    def attention(self, x: Array, context: Array, layer: int) -> Array:
        """Attend from block rows x [B, H] to context [P, H] and block."""
        config, at = self.config, f"layers.{layer}.self_attn."
        size, heads, groups = config.head_dim, config.num_attention_heads, config.num_key_value_heads
        rows, start = np.concatenate([context, x]), len(context)
        queries = (x @ self.t[at + "q_proj.weight"].T).reshape(len(x), heads, -1)
        raw = (rows @ self.t[at + "k_proj.weight"].T).reshape(len(rows), groups, size)
        values = raw / rms(raw, config) if self.gemma else (rows @ self.t[at + "v_proj.weight"].T).reshape(raw.shape)
        keys = self.norm(raw, at + "k_norm")
        scale = 1.0 if self.gemma else size**-0.5
        out = np.zeros((len(x), heads, size))
        for head in range(heads):
            group = head // (heads // groups)
            for row in range(len(x)):
                query = self.rotated(self.norm(queries[row, head, :size], at + "q_norm"), start + row)
                seen = [key for key in range(len(rows)) if visible(config, layer, row, start, key)]
                scores = [scale * query @ self.rotated(keys[key, group], key) for key in seen]
                total = sum(math.exp(score) for score in scores)
                if self.get("attention_sinks"):
                    total += math.exp(self.t[at + "sinks"][head])
                out[row, head] = sum(
                    math.exp(score) / total * values[key, group] for key, score in zip(seen, scores, strict=True)
                )
                if self.get("gated_query"):
                    out[row, head] *= sigmoid(queries[row, head, size:])
        return out.reshape(len(x), -1) @ self.t[at + "o_proj.weight"].T

    def rotated(self, vector: Array, position: int) -> Array:
        """Rotate a head's vector [D] for its position."""
        size = len(vector)
        share, spread = self.get("partial_rotary_factor", 1.0), size if self.gemma else None
        rotated = int(size * share)
        frequencies, factor = self.frequencies(rotated, spread or rotated)
        out = vector.copy()
        for i in range(rotated // 2):
            if self.get("rope_traditional"):
                a, b = 2 * i, 2 * i + 1
            else:
                a, b = i, i + (size if self.gemma else rotated) // 2
            c, s = math.cos(position * frequencies[i]), math.sin(position * frequencies[i])
            out[a] = factor * (vector[a] * c - vector[b] * s)
            out[b] = factor * (vector[a] * s + vector[b] * c)
        return out

    def frequencies(self, rotated: int, spread: int) -> tuple[list[float], float]:
        """Return each pair's angle a position and, for yarn (arXiv 2309.00071), the factor on the rotated values."""
        base, scaling = self.config.rope_theta, self.config.rope_scaling
        plain = [base ** (-2 * i / spread) for i in range(rotated // 2)]
        if not scaling or scaling["rope_type"] != "yarn":
            return plain, 1.0
        factor, span = scaling["factor"], scaling["original_max_position_embeddings"]

        def pair_of(turns: float) -> float:
            return rotated * math.log(span / (turns * 2 * math.pi)) / (2 * math.log(base))

        low = max(math.floor(pair_of(scaling["beta_fast"])), 0)
        high = min(math.ceil(pair_of(scaling["beta_slow"])), rotated - 1)
        ramp = [min(max((i - low) / (high - low), 0.0), 1.0) for i in range(rotated // 2)]
        mixed = [f * (1 - r) + f / factor * r for f, r in zip(plain, ramp, strict=True)]
        return mixed, 0.1 * math.log(factor) + 1.0

    def mlp(self, x: Array, layer: int) -> Array:
        """Map rows [B, H] through the gated feed-forward."""
        at = f"layers.{layer}.mlp."
        gate, up = x @ self.t[at + "gate_proj.weight"].T, x @ self.t[at + "up_proj.weight"].T
        cubic = np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))
        act = 0.5 * gate * (1 + cubic) if self.gemma else gate * sigmoid(gate)
        return (act * up) @ self.t[at + "down_proj.weight"].T

    def convolved(self, values: Array, given: Array, layer: int, side: str, place: int) -> Array:
        """Filter values [B, H] by the kernels that the sublayer's input makes; without convolutions do nothing."""
        name = f"layers.{layer}.{side}_conv."
        if name + "base_kernel" not in self.t:
            return values
        base, size, group = self.t[name + "base_kernel"], self.config.conv_kernel_size, self.config.conv_group_size
        hidden = self.config.hidden_size
        delta = (given @ self.t[name + "kernel_projection.weight"].T).reshape(-1, 2, size, hidden // group)
        out = np.zeros_like(values)
        for row in range(len(values)):
            for channel in range(hidden):
                for back in range(min(size, row + 1)):
                    kernel = base[place, back, channel] + delta[row, place, back, channel // group]
                    out[row, channel] += kernel * values[row - back, channel]
        return out

    def norm(self, x: Array, name: str) -> Array:
        """Return x [..., D] over its root mean square, times the norm's weight."""
        return x / rms(x, self.config) * self.t[name + ".weight"]

    # --- heads ---------------------------------------------------------------------------------------------------

    def markov_path(self, hidden: Array, logits: Array, anchor: int) -> tuple[list[int], Array]:
        """Return the greedy tokens, as the target's ids, and the corrected logits [n, drafted] of each slot."""
        rank, rows, path, state = self.config.markov_rank, [], [anchor], np.zeros(self.config.markov_rank)
        for h, base in zip(hidden, logits, strict=True):
            token, kind = self.t["markov_head.markov_w1.weight"][path[-1]], self.config.markov_head_type
            if kind == "gated":
                token = token * sigmoid(self.linear(np.concatenate([h, token]), "markov_head.gate_proj"))
            if kind == "rnn":
                gate, new, out = self.linear(np.concatenate([state, token, h]), "markov_head.joint_proj").reshape(
                    3, rank
                )
                state = sigmoid(gate) * state + (1 - sigmoid(gate)) * np.tanh(new)
                token = np.tanh(out)
            rows.append(base + self.t["markov_head.markov_w2.weight"] @ token)
            path.append(self.in_target(int(rows[-1].argmax())))
        return path[1:], np.array(rows)

    def in_target(self, token: int) -> int:
        """Return the target's id of an id in the draft vocabulary."""
        return token + int(self.t["d2t"][token]) if "d2t" in self.t else token

    def confidence(self, hidden: Array, previous: list[int]) -> Array:
        """Return each slot's chance [n] after its previous token."""
        tables = [self.t["markov_head.markov_w1.weight"][previous]] if self.config.confidence_head_with_markov else []
        return sigmoid(self.linear(np.concatenate([hidden, *tables], axis=1), "confidence_head.proj"))[:, 0]

    def selector_path(self, hidden: Array, logits: Array, anchor: int) -> tuple[list[int], list[dict[int, float]]]:
        """Return the greedy path, and each slot's score by candidate along it."""
        at, path, slots = "candidate_selector.", [anchor], []
        for h, row in zip(hidden, logits, strict=True):
            projected = self.t[at + "hidden_projection.weight"] @ h
            before = self.t[at + "predecessor_codebook"][path[-1]]
            best = sorted(range(len(row)), key=lambda token: -row[token])[: self.config.selector_top_k]
            after = self.t[at + "successor_codebook"]
            slots.append({token: row[token] + float(np.sum(before * projected * after[token])) for token in best})
            path.append(max(slots[-1], key=lambda token: slots[-1][token]))
        return path[1:], slots

    def linear(self, x: Array, name: str) -> Array:
        """Map x [..., in] through a linear layer with a bias."""
        return x @ self.t[name + ".weight"].T + self.t[name + ".bias"]


def rms(x: Array, config) -> Array:
    """Return the root mean square [..., 1] of x [..., D]."""
    return np.sqrt((x**2).mean(axis=-1, keepdims=True) + config.rms_norm_eps)


def sigmoid(x: Array) -> Array:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))
