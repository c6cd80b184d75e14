// What goes into a sublayer and comes out of it: [tokens, hidden] each.
#ifndef GEMINID_TRAINING_TRANSFORMER_SUBLAYER_H_
#define GEMINID_TRAINING_TRANSFORMER_SUBLAYER_H_

namespace geminid::trainer {

// out = residual + f(norm(x)). As a rule `residual` is x. In a parallel block the MLP reads the x
// of attention, and adds to what attention left: `residual` may be `out`.
template <typename T>
struct SublayerForward {
  const T* x = nullptr;
  const T* residual = nullptr;
  T* out = nullptr;
};

// dx = residual + the gradient of x by way of f, from dy, the gradient of what f adds. As a rule
// the three are one place. `dx` may be `dy` or `residual`.
template <typename T>
struct SublayerBackward {
  const T* x = nullptr;
  const T* dy = nullptr;
  const T* residual = nullptr;
  T* dx = nullptr;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_SUBLAYER_H_
