// The sublayers of a decoder's layers, and what goes into one and comes out of it: rows of the
// residual stream, [tokens, hidden], or what a rank has of them.
#ifndef GEMINID_TRAINING_TRANSFORMER_SUBLAYER_H_
#define GEMINID_TRAINING_TRANSFORMER_SUBLAYER_H_

#include <cstddef>
#include <cstdint>

namespace geminid::trainer {

struct Sublayer {
  enum class Kind : uint8_t { kAttention, kMlp };  // of experts, too
  Kind kind = Kind::kAttention;
  size_t layer = 0;  // of the part
};
inline bool IsAttention(Sublayer::Kind kind) { return kind == Sublayer::Kind::kAttention; }

// out = residual + f(norm(x)), or of a family whose norms stand behind (Norms::after) norm(x) +
// f(norm(x)): `residual` is then not read. As a rule `residual` is x. In a parallel block the MLP
// reads the x of attention, and adds to what attention left: `residual` may be `out`.
template <typename T>
struct SublayerForward {
  const T* x = nullptr;
  const T* residual = nullptr;
  T* out = nullptr;
};

// dx = residual + the gradient of x by way of f, from dy, the gradient of what f adds. Where norms
// stand behind, dx is the gradient by way of norm(x) + f(norm(x)) alone. As a rule the three are
// one place. `dx` may be `dy` or `residual`.
template <typename T>
struct SublayerBackward {
  const T* x = nullptr;
  const T* dy = nullptr;
  const T* residual = nullptr;
  T* dx = nullptr;
};

// What the forward pass of a sublayer keeps for its backward pass beside x, where activations are
// kept. Workspace.
struct KeptSublayer {
  virtual ~KeptSublayer() = default;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_SUBLAYER_H_
