"""The CUDA C of the tree kernels and of the KV moves. Text only: `cupy_kernels` compiles and launches it, and a test
compiles the same text as C++ and runs it on the host.

One thread owns all that it writes, so nothing waits and the order of threads has no say.
"""

from __future__ import annotations

TREES = r"""
extern "C" __global__ void tree_paths(
    const long long* parents, const long long* depths, const long long* slots, long long* paths,
    long long count, long long deepest)
{
    /* one thread per node; paths: [count, deepest] */
    long long node = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= count) return;
    long long* path = paths + node * deepest;
    for (long long step = depths[node]; step < deepest; ++step) path[step] = 0;
    long long at = node;
    for (long long step = depths[node] - 1; step >= 0; --step) {
        path[step] = slots[at];
        at = parents[at];
    }
}

extern "C" __global__ void tree_ancestors(
    const long long* parents, const long long* firsts, unsigned long long* bits,
    long long count, long long words)
{
    /* one thread per node; bits: [count, words] */
    long long node = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= count) return;
    unsigned long long* mine = bits + node * words;
    for (long long word = 0; word < words; ++word) mine[word] = 0;
    for (long long at = node; at >= 0; at = parents[at]) {
        long long guess = at - firsts[node];
        mine[guess / 64] |= 1ULL << (guess % 64);
    }
}

extern "C" __global__ void tree_mask(
    const long long* starts, const long long* keys, const long long* lengths, const long long* linear,
    const long long* nodes, const long long* trees, const unsigned long long* bits, const long long* depths,
    unsigned char* mask, long long words, long long window)
{
    /* one row of blocks per row of the batch: blockIdx.y; its threads stride over the row's keys */
    long long row = blockIdx.y;
    long long lowest = lengths[row] - window, known = linear[row], node = nodes[row];
    unsigned char* mine = mask + starts[row];
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long key = (long long)blockIdx.x * blockDim.x + threadIdx.x; key < keys[row]; key += stride) {
        bool seen = key < known && key >= lowest;
        if (node >= 0 && key >= known) {
            long long guess = key - known;
            bool ancestor = guess < words * 64 && (bits[node * words + guess / 64] >> (guess % 64) & 1);
            seen = ancestor && known + depths[trees[row] + guess] - 1 >= lowest;
        }
        mine[key] = seen;
    }
}
"""

MOVES = r"""
extern "C" __global__ void move_tokens(
    WORD* data, WORD* held, const long long* sources, const long long* targets,
    long long count, long long planes, long long slots, long long width)
{
    /* data: [planes, slots, width] words; held: [planes, count, width]. One thread owns a column of a plane: it reads
       all sources before it writes any target, and no other thread touches its column. */
    long long column = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= planes * width) return;
    long long plane = column / width, word = column % width;
    WORD* mine = data + plane * slots * width + word;
    WORD* kept = held + plane * count * width + word;
    for (long long i = 0; i < count; ++i) kept[i * width] = mine[sources[i] * width];
    for (long long i = 0; i < count; ++i) mine[targets[i] * width] = kept[i * width];
}
"""

WORDS = {8: "unsigned long long", 4: "unsigned int", 2: "unsigned short"}
"""By bytes: what a token is moved in. A bfloat16 head is whole 2-byte words at least."""


def word_bytes(token_bytes: int) -> int:
    """The largest word that a token of a layer is a multiple of."""
    return next(size for size in WORDS if token_bytes % size == 0)


def moves_source(size: int) -> str:
    return MOVES.replace("WORD", WORDS[size])
