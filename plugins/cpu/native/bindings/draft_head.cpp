// A pass of a draft model in one call: from tokens and hidden states to draft tokens and own hidden states.
#include "ops/draft_head.hpp"

#include <nanobind/stl/vector.h>

#include "bindings/decoder_stack.hpp"
#include "bindings/draft_vocabulary.hpp"
#include "bindings/sampler.hpp"
#include "ops/draft_chains.hpp"

namespace specserve {

namespace {

template <typename S>
using LinearPtr = std::optional<std::shared_ptr<PackedLinear<S>>>;

// What Python owns of the weights.
template <typename S>
struct HeadParts {
    Array embedding;
    LinearPtr<S> target_fc, fc;
    std::optional<Array> target_norm, enorm, hnorm;
};

template <typename S>
class PyDraftHead {
   public:
    PyDraftHead(std::shared_ptr<Machine> machine, std::shared_ptr<PyDecoderStack<S>> stack, HeadParts<S> parts,
                std::optional<Array> draft_ids, int target_size, float target_eps, bool reads_hidden,
                bool embedding_first, bool feeds_back_norm)
        : stack_(std::move(stack)), parts_(std::move(parts)),
          weights_(make_weights(target_size, target_eps, reads_hidden, embedding_first, feeds_back_norm)),
          head_(kernel_table<S>(machine->kernels), machine->pool, weights_),
          vocabulary_(std::move(draft_ids), stack_->num_logits(), weights_.vocab_size) {}

    // Returns (tokens, probabilities), `count` of each per target row.
    nb::tuple step(const Array& ids, const std::optional<Array>& hidden, bool from_target, const Array& positions,
                   const Array& slots, const AttentionPlan& plan, const Array& scored, const AttentionPlan& scored_plan,
                   Sampler& sampler, const TargetRowsBuilder& builder, int count, const std::optional<Array>& own) {
        int num_scored = static_cast<int>(scored.shape(0));
        auto in = checked_rows(ids, hidden, from_target, positions, slots, plan, scored, scored_plan);
        S* own_rows = checked_own(own, num_scored);
        int size = stack_->num_logits();
        const TargetRows& targets = builder.checked({nullptr, 0, num_scored, size});
        const int64_t* of_target = vocabulary_.of_target(targets, count);
        std::vector<DraftToken> drafts;
        {
            nb::gil_scoped_release no_gil;
            std::lock_guard lock(stack_->mutex());
            if (in.count) {
                const float* logits = head_.run(stack_->stack(), size, in, own_rows);
                drafts = sampler.draft_tokens({logits, size, num_scored, size}, targets, of_target, count);
            }
        }
        return to_tuple(drafts);
    }

    // Returns (tokens, probabilities), the longest chain's length of each scored row, and of the passes after the first
    // their seconds and number.
    nb::tuple chains(const Array& ids, const std::optional<Array>& hidden, bool from_target, const Array& positions,
                     const Array& slots, const AttentionPlan& plan, const Array& scored,
                     const AttentionPlan& scored_plan, Sampler& sampler, const TargetRowsBuilder& builder,
                     const std::vector<int>& steps, const std::optional<Array>& own) {
        int num_scored = static_cast<int>(scored.shape(0)), size = stack_->num_logits();
        auto in = checked_rows(ids, hidden, from_target, positions, slots, plan, scored, scored_plan);
        S* own_rows = checked_own(own, num_scored);
        if (weights_.reads_hidden != own.has_value())
            throw std::invalid_argument("own must be given where the head reads hidden states, and only there.");
        const TargetRows& targets = builder.checked({nullptr, 0, num_scored, size});
        const int64_t* of_target = vocabulary_.of_target(targets, 1);
        check_chains(in, targets, steps);
        DraftChains made;
        {
            nb::gil_scoped_release no_gil;
            std::lock_guard lock(stack_->mutex());
            DraftChainMaker<S> maker(head_, stack_->stack(), sampler);
            made = maker.run(in, targets, of_target, size, steps, own_rows, weights_.hidden_size);
        }
        return nb::make_tuple(to_tuple(made.tokens), made.further_seconds, made.further_passes);
    }

   private:
    typename DraftHead<S>::Rows checked_rows(const Array& ids, const std::optional<Array>& hidden, bool from_target,
                                             const Array& positions, const Array& slots, const AttentionPlan& plan,
                                             const Array& scored, const AttentionPlan& scored_plan) const {
        int64_t rows = static_cast<int64_t>(ids.shape(0));
        const int64_t* tokens = checked_data<int64_t>(ids, "ids", {rows});
        for (int64_t i = 0; i < rows; ++i) check_index(tokens[i], weights_.vocab_size, "token");
        if (weights_.reads_hidden != hidden.has_value())
            throw std::invalid_argument("hidden must be given where the head reads hidden states, and only there.");
        int width = from_target ? weights_.target_size : weights_.hidden_size;
        const S* states = hidden ? checked_data<S>(*hidden, "hidden", {rows, width}) : nullptr;
        int num_scored = static_cast<int>(scored.shape(0));
        const int64_t* scored_rows = stack_->checked_rows(scored, rows);
        for (int i = 1; i < num_scored; ++i)
            if (scored_rows[i] <= scored_rows[i - 1]) throw std::invalid_argument("scored rows must ascend.");
        stack_->check_plan_of(scored_plan, num_scored);
        if (stack_->num_layers() > 1) stack_->check_plan_of(plan, rows);
        return {static_cast<int>(rows),
                tokens,
                stack_->checked_positions(positions, rows),
                stack_->checked_slots(slots, rows),
                states,
                from_target,
                &plan,
                {scored_rows, num_scored, &scored_plan}};
    }

    S* checked_own(const std::optional<Array>& own, int num_scored) const {
        return own ? checked_data<S>(*own, "own", {num_scored, weights_.hidden_size}) : nullptr;
    }

    // Everything that a further pass reads is in range.
    void check_chains(const typename DraftHead<S>::Rows& in, const TargetRows& targets,
                      const std::vector<int>& steps) const {
        size_t count = static_cast<size_t>(in.scored.count);
        if (!count || steps.size() != count || targets.rows.size() != count)
            throw std::invalid_argument("steps and targets must be of each scored row; got " +
                                        std::to_string(steps.size()) + " and " + std::to_string(targets.rows.size()) +
                                        " of " + std::to_string(count) + ".");
        if (!targets.edits.empty()) throw std::invalid_argument("chains take no edits: each pass needs its own.");
        std::vector<int> more;
        for (size_t i = 0; i < count; ++i) {
            if (targets.rows[i].row != static_cast<int64_t>(i) || targets.rows[i].replacement)
                throw std::invalid_argument("target row i must be of scored row i, without logits of its own.");
            if (steps[i] < 1) throw std::invalid_argument("steps must be at least 1; got " + std::to_string(steps[i]));
            more.push_back(steps[i] - 1);
            int64_t last = in.positions[in.scored.rows[i]] + steps[i] - 1;
            check_index(last, stack_->num_positions(), "position");
        }
        if (!in.scored.plan->has_room(more))
            throw std::invalid_argument("each scored row must be a request's last, with blocks for its chain.");
    }

    DraftHeadWeights<S> make_weights(int target_size, float target_eps, bool reads_hidden, bool embedding_first,
                                     bool feeds_back_norm) const {
        int hidden = stack_->hidden_size();
        DraftHeadWeights<S> w{};
        w.embedding = checked_data<S>(parts_.embedding, "embedding", {kAny, hidden});
        w.vocab_size = static_cast<int>(parts_.embedding.shape(0));
        w.hidden_size = hidden;
        w.eps = stack_->eps();
        w.reads_hidden = reads_hidden;
        w.target_size = target_size;
        w.target_eps = target_eps;
        if (parts_.target_fc)
            w.target_fc = checked_linear(**parts_.target_fc, "target_fc", hidden, target_size);
        else if (reads_hidden && target_size != hidden)
            throw std::invalid_argument("target_size must be the hidden size without target_fc; got " +
                                        std::to_string(target_size) + " and " + std::to_string(hidden) + ".");
        w.target_norm = checked_rounded_norm<S>(parts_.target_norm, hidden);
        if (parts_.fc) w.fc = checked_linear(**parts_.fc, "fc", hidden, 2 * hidden);
        if (stack_->has_mixers_or_gates())
            throw std::invalid_argument("a draft head's layers must have attention without gates.");
        if (stack_->reads_aux() != (reads_hidden && !parts_.fc))
            throw std::invalid_argument("layers must have an auxiliary norm where there is no fc, and only there.");
        w.embedding_first = embedding_first;
        w.enorm = checked_rounded_norm<S>(parts_.enorm, hidden);
        w.hnorm = checked_rounded_norm<S>(parts_.hnorm, hidden);
        w.own_norm = feeds_back_norm ? stack_->final_norm() : nullptr;
        return w;
    }

    std::shared_ptr<PyDecoderStack<S>> stack_;
    HeadParts<S> parts_;
    DraftHeadWeights<S> weights_;
    DraftHead<S> head_;
    DraftVocabulary vocabulary_;
};

}  // namespace

template <typename S>
void bind_draft_head(nb::module_& m) {
    nb::class_<PyDraftHead<S>>(m, "DraftHead")
        .def(
            "__init__",
            [](PyDraftHead<S>* self, std::shared_ptr<Machine> machine, std::shared_ptr<PyDecoderStack<S>> stack,
               Array embedding, LinearPtr<S> target_fc, std::optional<Array> target_norm, int target_size,
               float target_eps, LinearPtr<S> fc, bool reads_hidden, bool embedding_first, std::optional<Array> enorm,
               std::optional<Array> hnorm, bool feeds_back_norm, std::optional<Array> draft_ids) {
                HeadParts<S> parts{std::move(embedding),   std::move(target_fc), std::move(fc),
                                   std::move(target_norm), std::move(enorm),     std::move(hnorm)};
                new (self) PyDraftHead<S>(std::move(machine), std::move(stack), std::move(parts), std::move(draft_ids),
                                          target_size, target_eps, reads_hidden, embedding_first, feeds_back_norm);
            },
            nb::kw_only(), nb::arg("machine"), nb::arg("stack"), nb::arg("embedding"), nb::arg("target_fc").none(),
            nb::arg("target_norm").none(), nb::arg("target_size"), nb::arg("target_eps"), nb::arg("fc").none(),
            nb::arg("reads_hidden"), nb::arg("embedding_first"), nb::arg("enorm").none(), nb::arg("hnorm").none(),
            nb::arg("feeds_back_norm"), nb::arg("draft_ids").none())
        .def("step", &PyDraftHead<S>::step, nb::arg("ids"), nb::arg("hidden").none(), nb::arg("from_target"),
             nb::arg("positions"), nb::arg("slots"), nb::arg("plan"), nb::arg("scored"), nb::arg("scored_plan"),
             nb::arg("sampler"), nb::arg("targets"), nb::arg("count"), nb::arg("own").none())
        .def("chains", &PyDraftHead<S>::chains, nb::arg("ids"), nb::arg("hidden").none(), nb::arg("from_target"),
             nb::arg("positions"), nb::arg("slots"), nb::arg("plan"), nb::arg("scored"), nb::arg("scored_plan"),
             nb::arg("sampler"), nb::arg("targets"), nb::arg("steps"), nb::arg("own").none());
}

template void bind_draft_head<Bf16>(nb::module_&);
template void bind_draft_head<float>(nb::module_&);

}  // namespace specserve
