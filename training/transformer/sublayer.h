// The sublayers of a decoder's layers, and their inputs and outputs: rows of the residual stream,
// [tokens, hidden], or a rank's block of them.
#ifndef GEMINID_TRAINING_TRANSFORMER_SUBLAYER_H_
#define GEMINID_TRAINING_TRANSFORMER_SUBLAYER_H_

#include <cstddef>
#include <cstdint>

namespace geminid::trainer {

struct Sublayer {
  enum class Kind : uint8_t { kAttention, kMlp };  // kMlp: of experts, too
  Kind kind = Kind::kAttention;
  size_t layer = 0;  // within the part
};
inline bool IsAttention(Sublayer::Kind kind) { return kind == Sublayer::Kind::kAttention; }

// out = residual + f(norm(x)). In families with norms after sublayers (Norms::after), out = norm(x)
// + f(norm(x)), and `residual` is not read. `residual` is usually x. In a parallel block the MLP
// reads the x of attention and adds to the output of attention: `residual` may be `out`.
template <typename T>
struct SublayerForward {
  const T* x = nullptr;
  const T* residual = nullptr;
  T* out = nullptr;
};

// dx = residual + the gradient of x through f; dy is the gradient of the output of f. With norms
// after sublayers, dx is the gradient through norm(x) + f(norm(x)) alone. `dy`, `residual` and `dx`
// are usually the same memory. `dx` may be `dy` or `residual`.
template <typename T>
struct SublayerBackward {
  const T* x = nullptr;
  const T* dy = nullptr;
  const T* residual = nullptr;
  T* dx = nullptr;
};

// The values beside x that a sublayer's forward pass keeps for its backward pass, if activations
// are kept. They are in the workspace.
struct SublayerActivations {
  virtual ~SublayerActivations() = default;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_SUBLAYER_H_
