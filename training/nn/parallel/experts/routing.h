// Which experts of a Mixture-of-Experts layer each token goes to, and with what weights. Pure.
//
// A token chooses the k experts with the largest logits, of equal ones those of lower number. What
// an expert computes of it is multiplied by
//   kOverChosen  the softmax over the k logits chosen (Mixtral, arXiv:2401.04088, section 2.1)
//   kOverAll     the softmax over all logits (Switch Transformers, arXiv:2101.03961, section 2.1)
// and added up in the order of the experts' numbers.
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
  // Of a group of tokens an expert takes at most ceil(capacity_factor k tokens / experts); what is
  // beyond that is dropped: all first choices in the order of the tokens come before all second
  // ones (GShard, arXiv:2006.16668, algorithm 1). 0: it takes all, and nothing is dropped.
  double capacity_factor = 0;
  // Tokens of a group, which divides the tokens; 0: all are one.
  size_t capacity_group = 0;
};

// INVALID_ARGUMENT that says what would be right.
absl::Status Validate(const RoutingOptions& options);

// One choice of one token, which an expert computes.
struct RoutedRow {
  size_t token = 0;
  size_t choice = 0;  // 0: of the largest logit
  friend bool operator==(const RoutedRow&, const RoutedRow&) = default;
};

struct Routing {
  RoutingOptions options;
  size_t tokens = 0;
  std::vector<uint32_t> chosen{};      // [tokens, choices], by falling logit
  std::vector<float> weights{};        // [tokens, choices]
  std::vector<float> probabilities{};  // [tokens, experts]: the softmax over all
  // By expert, then by token. Those of expert e begin at first[e]; first[experts] is their number.
  std::vector<RoutedRow> rows{};
  std::vector<size_t> first{};

  size_t RowsOf(size_t expert) const { return first[expert + 1] - first[expert]; }
  size_t dropped() const { return tokens * options.choices - rows.size(); }
  float WeightOf(const RoutedRow& row) const {
    return weights[row.token * options.choices + row.choice];
  }
};

// logits [tokens, experts]. INVALID_ARGUMENT for options or a size that are wrong. Logits that are
// not finite are routed too, somewhere, and weigh NaN.
absl::StatusOr<Routing> Route(const RoutingOptions& options, std::span<const float> logits);

// Tokens [first, first + count) of a routing: a sequence, say.
struct TokenGroup {
  size_t first = 0;
  size_t count = 0;
};

// The load-balancing loss of a group of tokens: experts sum_e f_e P_e, where f_e is how many
// choices of e there are per token, dropped or not, and P_e the mean probability of e. For k = 1 it
// is that of Switch Transformers (section 2.2, equations 4 to 6); beyond, f sums to k, as in
// load_balancing_loss_func of Hugging Face's Mixtral. k when the load is even.
//
// What is added to the gradient of the logits: of scale times the sum of the balance losses of the
// tokens in groups of `group`, which divides them.
struct BalanceTerm {
  double scale = 0;
  size_t group = 0;
};

// The gradient of the logits, [tokens, experts], from that of the weights, [tokens, choices], of
// which those of dropped choices are not read. Choices, and f of the balance loss, are constants.
// INVALID_ARGUMENT for sizes that are wrong.
absl::Status RouteBackward(const Routing& routing, std::span<const float> weight_gradients,
                           const BalanceTerm& balance, std::span<float> logit_gradients);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_EXPERTS_ROUTING_H_
