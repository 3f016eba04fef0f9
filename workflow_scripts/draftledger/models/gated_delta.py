"""The gated delta recurrence over a block of tokens: in chunks, in plain MLX operations, or as one kernel."""

from collections.abc import Callable
from functools import cache

import mlx.core as mx
import numpy as np

from draftledger.models.delta_kernels import Step, in_operations, kernel

CHUNK = 32
SMALL = 2**12  # elements of a state

StateAfter = Callable[[int], mx.array]


def gated_delta(
    qk: mx.array, v: mx.array, *, log_g: mx.array, beta: mx.array, state: mx.array, fused: bool = True
) -> tuple[mx.array, StateAfter]:
    """Run S ← g·S + β(v − g·S k)kᵀ, y = S q over T tokens in the form that is fastest for the shape.

    qk: [B, Hk, 2, T, Dk], queries and keys; v: [B, T, Hv, Dv]; log_g: [B, T, Hv], or [B, T, Hv, Dk] where each column
    of the state decays by itself; beta: [B, T, Hv]; state: [B, Hv, Dv, Dk] float32; Hv is a multiple of Hk.
    `fused` allows a kernel of the machine's own, which has no gradient.
    Returns y: [B, T, Hv, Dv] float32 and what gives the state after the first 1 to T tokens.
    """
    form = kernel(qk.shape[-1]) if fused else None
    if form is None and _is_small(v.shape[1], state):
        form = in_operations
    if form is None:
        return in_chunks(qk, v, log_g=log_g, beta=beta, state=state)
    return one_by_one(qk, v, log_g=log_g, beta=beta, state=state, form=form)


def _is_small(width: int, state: mx.array) -> bool:
    # Two tokens on one CPU core's worth of state: .23 ms one by one, .34 in a chunk; from three on chunks win.
    return mx.default_device() == mx.cpu and width <= 2 and state.size <= SMALL


def one_by_one(
    qk: mx.array, v: mx.array, *, log_g: mx.array, beta: mx.array, state: mx.array, form: Step = in_operations
) -> tuple[mx.array, StateAfter]:
    """Do as `gated_delta` does token by token in a form that is run again for the state within the block."""
    y, last = form(qk, v, log_g, beta, state)

    def after(count: int) -> mx.array:
        if count == v.shape[1]:
            return last
        kept = slice(count)
        return form(qk[..., kept, :], v[:, kept], log_g[:, kept], beta[:, kept], state)[1]

    return y, after


def in_chunks(
    qk: mx.array, v: mx.array, *, log_g: mx.array, beta: mx.array, state: mx.array
) -> tuple[mx.array, StateAfter]:
    """Do as `gated_delta` does, up to `CHUNK` tokens at a time by a triangular solve (Gated DeltaNet, 2412.06464)."""
    width = v.shape[1]
    if width <= CHUNK:
        return _chunk_of(qk, v, log_g, beta, state)
    outputs, states = [], []
    for start in range(0, width, CHUNK):
        rows = slice(start, start + CHUNK)
        y, after = _chunk_of(qk[..., rows, :], v[:, rows], log_g[:, rows], beta[:, rows], state)
        state = after(min(CHUNK, width - start))
        outputs.append(y)
        states.append(after)
    return mx.concatenate(outputs, axis=1), lambda count: states[(count - 1) // CHUNK]((count - 1) % CHUNK + 1)


def _chunk_of(
    qk: mx.array, v: mx.array, log_g: mx.array, beta: mx.array, state: mx.array
) -> tuple[mx.array, StateAfter]:
    y, update, left = _chunk(qk, v, log_g, beta, state, _masks(v.shape[1]))
    return y, lambda count: _after(state, qk[:, :, None, 1], update, left[:, :, :, count - 1])


@cache
def _masks(width: int) -> tuple[mx.array, ...]:
    """Return the constants of a chunk of T tokens, whose last axis or its last T columns are the tokens that write.

    spans, bars: [T, T + 1], 1 where token t decays what column s wrote, −∞ where s writes after t; column 0 is the
    state before. start, pairs: [L, T, T]; pairs is 1 where t lies in the second and s in the first half of the same
    2ˡ⁺¹ tokens, for level l. Level 0 is solved at once, as start + pairs with the identity and −1.
    """
    t, s = np.arange(width)[:, None], np.arange(width + 1)[None]
    spans, bars = t >= s, np.where(s <= t + 1, 0, -np.inf)
    sizes = 2 ** np.arange(max(1, (width - 1).bit_length()))[:, None, None]
    first, second = t // sizes, s[:, :-1] // sizes
    pairs = np.where((first == second + 1) & (first % 2 == 1), 1.0, 0.0)
    pairs[0] *= -1
    start = np.zeros_like(pairs)
    start[0] = np.eye(width)
    return tuple(mx.array(np.asarray(mask, dtype=np.float32)) for mask in (spans, bars, start, pairs))


@mx.compile
def _chunk(
    qk: mx.array, v: mx.array, log_g: mx.array, beta: mx.array, state: mx.array, masks: tuple[mx.array, ...]
) -> tuple[mx.array, mx.array, mx.array]:
    """Return y: [B, T, Hv, Dv], what each token writes: [B, Hk, R, T, Dv], and what is left of each write.

    R is Hv/Hk. The last, [B, Hk, R, T, T + 1, 1 or Dk], tells after each token t, in column 0 for the state before.
    """
    batch, heads, _, width, _ = qk.shape
    spans, bars, start, pairs = masks
    group = (batch, width, heads, v.shape[2] // heads)
    qk = qk.astype(mx.float32)
    v, beta, log_g = (x.astype(mx.float32).reshape(*group, -1).transpose(0, 2, 3, 1, 4) for x in (v, beta, log_g))
    # Summed span by span: the difference of two long sums would lose short spans behind strong decays.
    left = mx.exp(mx.cumsum(log_g[..., None, :] * spans[..., None], axis=3) + bars[..., None])
    read = _read if left.shape[-1] == 1 else _read_by_column
    (told, scores), (known, alike) = read(qk, state.reshape(batch, heads, -1, *state.shape[2:]), left)
    parts = start + (beta * alike)[..., None, :, :] * pairs
    inverse = parts[..., 0, :, :]
    for level in range(1, start.shape[0]):
        inverse = mx.addmm(inverse, inverse, parts[..., level, :, :] @ inverse, alpha=-1.0)
    update = inverse @ (beta * (v - known))
    y = mx.addmm(told, scores, update)
    return y.transpose(0, 3, 1, 2, 4).reshape(batch, width, -1, v.shape[-1]), update, left


def _read(qk: mx.array, state: mx.array, left: mx.array) -> list[tuple[mx.array, mx.array]]:
    """What queries, then keys, read from the decayed state before: [B, Hk, R, T, Dv], and from each write."""
    batch, heads, _, width, _ = qk.shape
    rows = qk.reshape(batch, heads, 2 * width, -1)
    old = (rows @ state.flatten(2, 3).swapaxes(-1, -2)).reshape(batch, heads, 2, width, *state.shape[2:4])
    new = rows @ qk[:, :, 1].swapaxes(-1, -2)
    since, between = left[..., 0, :], left[..., 1:, 0]
    return [
        (since * old[:, :, part].swapaxes(2, 3), between * new[:, :, None, part * width : (part + 1) * width])
        for part in (0, 1)
    ]


def _read_by_column(qk: mx.array, state: mx.array, left: mx.array) -> list[tuple[mx.array, mx.array]]:
    since, between = left[..., 0, :], left[..., 1:, :]
    keys = qk[:, :, None, 1, None]
    return [
        ((since * rows) @ state.swapaxes(-1, -2), (between * keys * rows[..., None, :]).sum(axis=-1))
        for rows in (qk[:, :, None, 0], qk[:, :, None, 1])
    ]


@mx.compile
def _after(state: mx.array, keys: mx.array, update: mx.array, left: mx.array) -> mx.array:
    old = state.reshape(*update.shape[:3], *state.shape[2:]) * left[..., :1, :]
    kept = keys.astype(mx.float32) * left[..., 1:, :]
    return mx.addmm(old, update.swapaxes(-1, -2), kept).reshape(state.shape)
