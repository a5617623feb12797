"""The CUDA C of the tree kernels and of the KV moves. Text only: `cupy_kernels` compiles and launches it, and a test
compiles the same text as C++ and runs it on the host.

No two threads write to the same place, and no thread reads what another writes: there is no synchronisation.
"""

from __future__ import annotations

TREES = r"""
extern "C" __global__ void tree_paths(
    const long long* parents, const long long* depths, const long long* slots, long long* paths,
    long long num_nodes, long long max_depth)
{
    /* one thread per node; paths: [num_nodes, max_depth] */
    long long node = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= num_nodes) return;
    long long* path = paths + node * max_depth;
    for (long long step = depths[node]; step < max_depth; ++step) path[step] = 0;
    long long ancestor = node;
    for (long long step = depths[node] - 1; step >= 0; --step) {
        path[step] = slots[ancestor];
        ancestor = parents[ancestor];
    }
}

extern "C" __global__ void tree_ancestors(
    const long long* parents, const long long* tree_starts, unsigned long long* bits,
    long long num_nodes, long long num_words)
{
    /* one thread per node; bits: [num_nodes, num_words] */
    long long node = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= num_nodes) return;
    unsigned long long* node_bits = bits + node * num_words;
    for (long long word = 0; word < num_words; ++word) node_bits[word] = 0;
    for (long long ancestor = node; ancestor >= 0; ancestor = parents[ancestor]) {
        long long token = ancestor - tree_starts[node];
        node_bits[token / 64] |= 1ULL << (token % 64);
    }
}

extern "C" __global__ void tree_mask(
    const long long* offsets, const long long* num_keys, const long long* lengths, const long long* prefix_lens,
    const long long* nodes, const long long* tree_starts, const unsigned long long* bits, const long long* depths,
    unsigned char* mask, long long num_words, long long window)
{
    /* blockIdx.y is the row of the batch; the threads of its blocks stride over the row's keys */
    long long row = blockIdx.y;
    long long lowest = lengths[row] - window, prefix_len = prefix_lens[row], node = nodes[row];
    unsigned char* row_mask = mask + offsets[row];
    long long stride = (long long)gridDim.x * blockDim.x;
    for (long long key = (long long)blockIdx.x * blockDim.x + threadIdx.x; key < num_keys[row]; key += stride) {
        bool visible = key < prefix_len && key >= lowest;
        if (node >= 0 && key >= prefix_len) {
            long long token = key - prefix_len;
            bool ancestor = token < num_words * 64 && (bits[node * num_words + token / 64] >> (token % 64) & 1);
            visible = ancestor && prefix_len + depths[tree_starts[row] + token] - 1 >= lowest;
        }
        row_mask[key] = visible;
    }
}
"""

MOVES = r"""
extern "C" __global__ void move_tokens(
    WORD* data, WORD* staging, const long long* sources, const long long* targets,
    long long count, long long planes, long long slots, long long width)
{
    /* data: [planes, slots, width] words; staging: [planes, count, width]. One thread per column of a plane: it reads
       all sources before it writes any target, and no other thread accesses its column. */
    long long column = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= planes * width) return;
    long long plane = column / width, word = column % width;
    WORD* cache = data + plane * slots * width + word;
    WORD* saved = staging + plane * count * width + word;
    for (long long i = 0; i < count; ++i) saved[i * width] = cache[sources[i] * width];
    for (long long i = 0; i < count; ++i) cache[targets[i] * width] = saved[i * width];
}
"""

WORDS = {8: "unsigned long long", 4: "unsigned int", 2: "unsigned short"}
"""The types that a token is moved in, by size in bytes. Every dtype's heads are multiples of 2 bytes."""


def word_bytes(token_bytes: int) -> int:
    """The largest word that a token of a layer is a multiple of."""
    return next(size for size in WORDS if token_bytes % size == 0)


def moves_source(size: int) -> str:
    return MOVES.replace("WORD", WORDS[size])
