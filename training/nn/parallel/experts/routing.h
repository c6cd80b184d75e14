// Chooses the experts of a Mixture-of-Experts layer for each token, and their weights. Pure.
//
// A token chooses the k experts with the largest logits; of equal ones, those with lower numbers.
// The expert's output is multiplied by
//   kOverChosen  the softmax over the k logits chosen (Mixtral, arXiv:2401.04088, section 2.1)
//   kOverAll     the softmax over all logits (Switch Transformers, arXiv:2101.03961, section 2.1)
// The weighted outputs are added in the order of the experts' numbers.
#ifndef GEMINID_TRAINING_NN_PARALLEL_EXPERTS_ROUTING_H_
#define GEMINID_TRAINING_NN_PARALLEL_EXPERTS_ROUTING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::collectives {

enum class Mixing : uint8_t { kOverChosen, kOverAll };

struct RoutingOptions {
  size_t experts = 0;
  size_t choices = 0;  // k, of each token
  Mixing mixing = Mixing::kOverChosen;
  // In a group of tokens an expert takes at most ceil(capacity_factor k tokens / experts) tokens
  // and drops the rest. All first choices, in the order of the tokens, come before all second
  // choices (GShard, arXiv:2006.16668, algorithm 1). 0: experts take all tokens.
  double capacity_factor = 0;
  // The tokens of a group; divides the number of tokens. 0: all tokens are one group.
  size_t capacity_group = 0;
};

// INVALID_ARGUMENT says which values are allowed.
absl::Status Validate(const RoutingOptions& options);

// One choice of one token, which an expert computes.
struct RoutedRow {
  size_t token = 0;
  size_t choice = 0;  // 0: the choice with the largest logit
  friend bool operator==(const RoutedRow&, const RoutedRow&) = default;
};

struct Routing {
  RoutingOptions options;
  size_t tokens = 0;
  std::vector<uint32_t> chosen{};      // [tokens, choices], by falling logit
  std::vector<float> weights{};        // [tokens, choices]
  std::vector<float> probabilities{};  // [tokens, experts]: the softmax over all logits
  // Sorted by expert, then by token. Rows of expert e begin at first[e]; first[experts] is the
  // number of rows.
  std::vector<RoutedRow> rows{};
  std::vector<size_t> first{};

  size_t RowsOf(size_t expert) const { return first[expert + 1] - first[expert]; }
  size_t dropped() const { return tokens * options.choices - rows.size(); }
  float WeightOf(const RoutedRow& row) const {
    return weights[row.token * options.choices + row.choice];
  }
};

// `logits` are [tokens, experts]. INVALID_ARGUMENT for wrong options or sizes. Tokens with logits
// that are not finite get some experts and NaN weights.
absl::StatusOr<Routing> Route(const RoutingOptions& options, std::span<const float> logits);

// Tokens [first, first + count) of a routing, for example a sequence.
struct TokenGroup {
  size_t first = 0;
  size_t count = 0;
};

// The load-balancing loss of a group of tokens: experts sum_e f_e P_e. f_e is the number of choices
// of expert e per token, dropped or not, and P_e the mean probability of e. An even load gives k.
// For k = 1 this is the loss of Switch Transformers (section 2.2, equations 4 to 6). For larger k,
// f sums to k, as in load_balancing_loss_func of Hugging Face's Mixtral.
//
// RouteBackward adds the gradient of `scale` times the sum of these losses over groups of `group`
// tokens. `group` divides the number of tokens.
struct BalanceTerm {
  double scale = 0;
  size_t group = 0;
};

// Computes the gradient of the logits, [tokens, experts], from the gradient of the weights,
// [tokens, choices]. Ignores the gradients of dropped choices. Choices, and f of the balance loss,
// are constants. INVALID_ARGUMENT for wrong sizes.
absl::Status RouteBackward(const Routing& routing, std::span<const float> weight_gradients,
                           const BalanceTerm& balance, std::span<float> logit_gradients);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_EXPERTS_ROUTING_H_
