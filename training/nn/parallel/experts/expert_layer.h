// A Mixture-of-Experts layer whose experts are spread over the ranks of a group, fp32:
//
//   z = x Wr^T                                      the router, on every rank
//   y_t = sum_e w_te (gate sigmoid(gate) up) W2_e^T,  gate = x_t W1_e^T,  up = x_t W3_e^T
//
// over the experts e that token t chose (routing.h). Each rank has other tokens, as many as it
// likes, the same router and E / P experts. Rows go to the experts' ranks and their results come
// back (row_exchange.h).
//
// Where nothing is dropped, y, dx and the gradients of the experts have the same bits however the
// same tokens are cut over ranks that follow each other. The router's are added up over the ranks,
// and are the same on all of them. With a capacity, each rank drops of its own tokens.
#ifndef GEMINID_TRAINING_NN_PARALLEL_EXPERTS_EXPERT_LAYER_H_
#define GEMINID_TRAINING_NN_PARALLEL_EXPERTS_EXPERT_LAYER_H_

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/nn/parallel/experts/routing.h"
#include "training/nn/parallel/experts/row_exchange.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/tensor/local_products.h"

namespace geminid::collectives {

struct ExpertLayerOptions {
  RoutingOptions routing;
  size_t hidden = 0;
  size_t inner = 0;  // of each expert
};

// What a forward pass leaves for its backward pass: routing, and by rows what went into the
// experts, what their activations read, and what came back.
struct PassedExperts {
  Routing routing;
  RowExchange exchange;
  FloatBlock inputs{}, gate{}, up{};  // at experts: [rows, hidden], and twice [rows, inner]
  FloatBlock outputs{};               // at tokens: [rows, hidden]
};

// All ranks make the same calls in the same order. One thread at a time. INVALID_ARGUMENT for spans
// of wrong sizes, before anything is sent, and for a BalanceTerm that does not fit the tokens:
// where only some ranks get it, the others wait for them until their timeout. RESOURCE_EXHAUSTED
// where there is no memory for what passes leave or take, which the other ranks are told. Numbers
// of the routing, some for each token and expert, are on the heap.
class ExpertLayer {
 public:
  // `ranks`, `memory`, and `pool` unless it is null, outlive the layer; `memory` also what passes
  // leave. INVALID_ARGUMENT where the ranks do not divide the experts, or for options that are
  // wrong.
  static absl::StatusOr<std::unique_ptr<ExpertLayer>> Make(const ExpertLayerOptions& options,
                                                           Communicator& ranks,
                                                           kernels::ThreadPool* pool = nullptr,
                                                           Memory& memory = HeapMemory());

  // Of this rank.
  size_t experts() const { return own_experts_; }

  struct Expert {
    std::span<const float> w1, w3;  // [inner, hidden]
    std::span<const float> w2;      // [hidden, inner]
  };
  struct Parameters {
    std::span<const float> router;    // [experts of all, hidden]
    std::span<const Expert> experts;  // this rank's
  };
  // x and y [tokens, hidden].
  absl::StatusOr<PassedExperts> Forward(std::span<const float> x, const Parameters& parameters,
                                        std::span<float> y);

  struct ExpertGradients {
    std::span<float> w1, w3, w2;
  };
  struct Gradients {
    std::span<float> x, router;
    std::span<const ExpertGradients> experts;
  };
  // Overwrites the gradients; an expert without rows gets zeros. `balance` is added to them.
  absl::Status Backward(std::span<const float> x, const Parameters& parameters,
                        PassedExperts& passed, std::span<const float> dy,
                        const BalanceTerm& balance, const Gradients& gradients);

 private:
  ExpertLayer(const ExpertLayerOptions& options, Communicator& ranks, kernels::ThreadPool* pool,
              Memory& memory);

  absl::StatusOr<FloatBlock> Take(size_t rows, size_t width);
  absl::Status TakePassed(PassedExperts& passed);
  absl::Status CheckParameters(size_t x, const Parameters& parameters) const;
  absl::Status CheckGradients(size_t x, const Gradients& gradients) const;
  // Of rows [first, first + rows) at the experts; `out` are these.
  absl::Status RunExpert(const Expert& expert, size_t first, size_t rows, PassedExperts& passed,
                         std::span<float> out);
  // `rows_gradient` is dy of the expert's rows before, dx after.
  absl::Status RunExpertBackward(const Expert& expert, size_t first, size_t rows,
                                 const PassedExperts& passed, std::span<float> rows_gradient,
                                 const ExpertGradients& gradients);
  absl::Status RouterBackward(std::span<const float> x, std::span<const float> router,
                              std::span<const float> dlogits, const Gradients& gradients);

  const ExpertLayerOptions options_;
  Communicator& ranks_;
  const size_t own_experts_;
  Memory& memory_;
  LocalProducts products_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_EXPERTS_EXPERT_LAYER_H_
