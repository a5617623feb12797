// A block head in one call: keys and values of committed tokens, then blocks and their chains of draft tokens.
#include "ops/block_head.hpp"

#include <numeric>

#include <nanobind/stl/vector.h>

#include "bindings/decoder_stack.hpp"
#include "bindings/draft_vocabulary.hpp"
#include "bindings/sampler.hpp"

namespace specserve {

namespace {

template <typename S>
using LinearPtr = std::shared_ptr<PackedLinear<S>>;

// What Python owns of the weights.
template <typename S>
struct BlockParts {
    Array embedding, hidden_norm;
    LinearPtr<S> fc, keys_values;
    std::optional<Array> markov_entry;
    std::optional<LinearPtr<S>> markov_out, markov_gate, markov_joint, confidence;
};

template <typename S>
class PyBlockHead {
   public:
    PyBlockHead(std::shared_ptr<Machine> machine, std::shared_ptr<PyDecoderStack<S>> stack, BlockParts<S> parts,
                std::optional<Array> draft_ids, int first_proposing)
        : stack_(std::move(stack)), parts_(std::move(parts)), first_proposing_(first_proposing),
          weights_(make_weights()), head_(kernel_table<S>(machine->kernels), machine->pool, weights_),
          vocabulary_(std::move(draft_ids), stack_->num_logits(), weights_.vocab_size) {
        if (first_proposing < 0)
            throw std::invalid_argument("first_proposing must be at least 0; got " + std::to_string(first_proposing) +
                                        ".");
    }

    void write(const Array& hidden, const Array& positions, const Array& slots) {
        auto rows = checked_committed(hidden, positions, slots);
        nb::gil_scoped_release no_gil;
        std::lock_guard lock(stack_->mutex());
        if (rows.count) head_.write(stack_->stack(), rows);
    }

    // Returns (tokens, probabilities), the most wanted of each block.
    nb::tuple draft(const Array& hidden, const Array& positions, const Array& slots, const Array& ids,
                    const Array& block_positions, const Array& block_slots, const AttentionPlan& plan,
                    const std::vector<int>& firsts, const std::vector<int>& wanted, Sampler& sampler,
                    const TargetRowsBuilder& builder) {
        auto committed = checked_committed(hidden, positions, slots);
        auto blocks = checked_blocks(ids, block_positions, block_slots, plan, firsts, wanted);
        int size = stack_->num_logits();
        const TargetRows& targets = builder.checked({nullptr, 0, static_cast<int>(wanted.size()), size});
        const int64_t* of_target = vocabulary_.of_target(targets, 1);
        check_targets(targets, wanted.size());
        std::vector<DraftToken> made;
        {
            nb::gil_scoped_release no_gil;
            std::lock_guard lock(stack_->mutex());
            if (committed.count) head_.write(stack_->stack(), committed);
            made = head_.draft(stack_->stack(), sampler, blocks, targets, of_target, size);
        }
        return to_tuple(made);
    }

    // states: of the same rows as the logits, where they are wanted.
    void rows(const Array& hidden, const Array& positions, const Array& slots, const Array& ids,
              const Array& block_positions, const Array& block_slots, const AttentionPlan& plan,
              const std::vector<int>& firsts, const std::vector<int>& wanted, const Array& logits,
              const std::optional<Array>& states) {
        auto committed = checked_committed(hidden, positions, slots);
        auto blocks = checked_blocks(ids, block_positions, block_slots, plan, firsts, wanted);
        int64_t count = std::accumulate(wanted.begin(), wanted.end(), int64_t{0});
        float* scores = checked_data<float>(logits, "logits", {count, stack_->num_logits()});
        S* normed = states ? checked_data<S>(*states, "states", {count, weights_.hidden_size}) : nullptr;
        nb::gil_scoped_release no_gil;
        std::lock_guard lock(stack_->mutex());
        if (committed.count) head_.write(stack_->stack(), committed);
        head_.rows(stack_->stack(), blocks, scores, normed);
    }

   private:
    typename BlockHead<S>::Committed checked_committed(const Array& hidden, const Array& positions,
                                                       const Array& slots) const {
        const S* states = checked_data<S>(hidden, "hidden", {kAny, weights_.fc.in_features});
        int64_t rows = static_cast<int64_t>(hidden.shape(0));
        return {static_cast<int>(rows), states, stack_->checked_positions(positions, rows),
                stack_->checked_slots(slots, rows)};
    }

    typename BlockHead<S>::Blocks checked_blocks(const Array& ids, const Array& positions, const Array& slots,
                                                 const AttentionPlan& plan, const std::vector<int>& firsts,
                                                 const std::vector<int>& wanted) const {
        const int64_t* tokens = checked_data<int64_t>(ids, "ids", {kAny});
        int64_t rows = static_cast<int64_t>(ids.shape(0));
        for (int64_t i = 0; i < rows; ++i) check_index(tokens[i], weights_.vocab_size, "token");
        stack_->check_plan_of(plan, rows);
        if (wanted.empty() || firsts.size() != wanted.size())
            throw std::invalid_argument("firsts and wanted must be of each block; got " +
                                        std::to_string(firsts.size()) + " and " + std::to_string(wanted.size()) + ".");
        for (size_t i = 0; i < wanted.size(); ++i) {
            int64_t end = i + 1 < firsts.size() ? firsts[i + 1] : rows;
            if (wanted[i] < 1 || firsts[i] < 0 || firsts[i] + int64_t{first_proposing_} + wanted[i] > end)
                throw std::invalid_argument("block " + std::to_string(i) + " from row " + std::to_string(firsts[i]) +
                                            " has no " + std::to_string(wanted[i]) + " rows that propose.");
        }
        if (tiles_end(plan) != rows) throw std::invalid_argument("blocks must have no padding rows.");
        return {static_cast<int>(rows),
                tokens,
                stack_->checked_positions(positions, rows),
                stack_->checked_slots(slots, rows),
                &plan,
                firsts,
                wanted,
                first_proposing_};
    }

    static int64_t tiles_end(const AttentionPlan& plan) {
        return plan.tiles().empty() ? 0 : plan.tiles().back().first_row + plan.tiles().back().num_rows;
    }

    static void check_targets(const TargetRows& targets, size_t count) {
        if (targets.rows.size() != count)
            throw std::invalid_argument("targets must be of each block; got " + std::to_string(targets.rows.size()) +
                                        " of " + std::to_string(count) + ".");
        if (!targets.edits.empty()) throw std::invalid_argument("blocks take no edits: each place needs its own.");
        for (size_t i = 0; i < count; ++i)
            if (targets.rows[i].row != static_cast<int64_t>(i) || targets.rows[i].replacement)
                throw std::invalid_argument("target row i must be of block i, without logits of its own.");
    }

    BlockHeadWeights<S> make_weights() const {
        int hidden = stack_->hidden_size(), numbers = stack_->num_layers() * 2 * stack_->kv_size(), rank = 0;
        BlockHeadWeights<S> w{};
        w.embedding = checked_data<S>(parts_.embedding, "embedding", {kAny, hidden});
        w.vocab_size = static_cast<int>(parts_.embedding.shape(0));
        w.hidden_size = hidden;
        w.eps = stack_->eps();
        w.fc = checked_linear(*parts_.fc, "fc", hidden, parts_.fc->linear().in_features);
        w.hidden_norm = checked_data<S>(parts_.hidden_norm, "hidden_norm", {hidden});
        w.keys_values = checked_linear(*parts_.keys_values, "keys_values", numbers, hidden);
        w.final_norm = stack_->final_norm();
        if (stack_->has_mixers_or_gates() || stack_->reads_aux() || !w.final_norm)
            throw std::invalid_argument("a block head's layers must be plain, with a final norm behind them.");
        if (parts_.markov_entry.has_value() != parts_.markov_out.has_value())
            throw std::invalid_argument("markov_entry and markov_out must be given together.");
        if ((parts_.markov_gate || parts_.markov_joint) &&
            (!parts_.markov_out || (parts_.markov_gate && parts_.markov_joint)))
            throw std::invalid_argument("one of markov_gate and markov_joint may be given, beside markov_out.");
        if (parts_.markov_out) {
            w.markov = markov_weights(w.vocab_size);
            rank = w.markov.rank;
        }
        if (parts_.confidence) {
            bool reads_state_alone = (*parts_.confidence)->linear().in_features == hidden;
            w.confidence =
                checked_linear(**parts_.confidence, "confidence", 1, reads_state_alone ? hidden : hidden + rank);
        }
        return w;
    }

    MarkovWeights<S> markov_weights(int vocab_size) const {
        int hidden = stack_->hidden_size(), rank = static_cast<int>(parts_.markov_entry->shape(1));
        MarkovWeights<S> w;
        w.rank = rank;
        w.entries = checked_data<S>(*parts_.markov_entry, "markov_entry", {vocab_size, rank});
        w.out = checked_linear(**parts_.markov_out, "markov_out", stack_->num_logits(), rank);
        if (parts_.markov_gate) w.gate = checked_linear(**parts_.markov_gate, "markov_gate", rank, hidden + rank);
        if (parts_.markov_joint)
            w.joint = checked_linear(**parts_.markov_joint, "markov_joint", 3 * rank, hidden + 2 * rank);
        return w;
    }

    std::shared_ptr<PyDecoderStack<S>> stack_;
    BlockParts<S> parts_;
    int first_proposing_;
    BlockHeadWeights<S> weights_;
    BlockHead<S> head_;
    DraftVocabulary vocabulary_;
};

}  // namespace

template <typename S>
void bind_block_head(nb::module_& m) {
    nb::class_<PyBlockHead<S>>(m, "BlockHead")
        .def(
            "__init__",
            [](PyBlockHead<S>* self, std::shared_ptr<Machine> machine, std::shared_ptr<PyDecoderStack<S>> stack,
               Array embedding, LinearPtr<S> fc, Array hidden_norm, LinearPtr<S> keys_values,
               std::optional<Array> markov_entry, std::optional<LinearPtr<S>> markov_out,
               std::optional<LinearPtr<S>> markov_gate, std::optional<LinearPtr<S>> markov_joint,
               std::optional<LinearPtr<S>> confidence, int first_proposing, std::optional<Array> draft_ids) {
                BlockParts<S> parts{std::move(embedding),   std::move(hidden_norm),  std::move(fc),
                                    std::move(keys_values), std::move(markov_entry), std::move(markov_out),
                                    std::move(markov_gate), std::move(markov_joint), std::move(confidence)};
                new (self) PyBlockHead<S>(std::move(machine), std::move(stack), std::move(parts), std::move(draft_ids),
                                          first_proposing);
            },
            nb::kw_only(), nb::arg("machine"), nb::arg("stack"), nb::arg("embedding"), nb::arg("fc"),
            nb::arg("hidden_norm"), nb::arg("keys_values"), nb::arg("markov_entry").none(),
            nb::arg("markov_out").none(), nb::arg("markov_gate").none(), nb::arg("markov_joint").none(),
            nb::arg("confidence").none(), nb::arg("first_proposing"), nb::arg("draft_ids").none())
        .def("write", &PyBlockHead<S>::write, nb::arg("hidden"), nb::arg("positions"), nb::arg("slots"))
        .def("draft", &PyBlockHead<S>::draft, nb::arg("hidden"), nb::arg("positions"), nb::arg("slots"), nb::arg("ids"),
             nb::arg("block_positions"), nb::arg("block_slots"), nb::arg("plan"), nb::arg("firsts"), nb::arg("wanted"),
             nb::arg("sampler"), nb::arg("targets"))
        .def("rows", &PyBlockHead<S>::rows, nb::arg("hidden"), nb::arg("positions"), nb::arg("slots"), nb::arg("ids"),
             nb::arg("block_positions"), nb::arg("block_slots"), nb::arg("plan"), nb::arg("firsts"), nb::arg("wanted"),
             nb::arg("logits"), nb::arg("states").none());
}

template void bind_block_head<Bf16>(nb::module_&);
template void bind_block_head<float>(nb::module_&);

}  // namespace specserve
