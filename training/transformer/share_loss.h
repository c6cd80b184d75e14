// The loss on a rank that has some words of the vocabulary (training/nn/layer_share.h). No rank has
// a whole row of logits. For the other ranks' words each row has one extra column, like one more
// word: the logarithm of the sum of their exponentials.
#ifndef GEMINID_TRAINING_TRANSFORMER_SHARE_LOSS_H_
#define GEMINID_TRAINING_TRANSFORMER_SHARE_LOSS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/nn/compute.h"
#include "training/nn/layer_share.h"

namespace geminid::trainer {

// The elements of a row of logits: so many words, one more, and padding for matrix products.
size_t LogitsWidth(size_t words);

// The losses of all tokens, some rows at a time.
class ShareLosses {
 public:
  // `targets`: one from LayerShare::TargetsHere for each of the `tokens`, where the model computes.
  static absl::StatusOr<ShareLosses> Of(const Resources& resources, LayerShare& share,
                                        const int32_t* targets, size_t tokens);

  // Computes rows [first, first + n.rows). `n` is the output layer's input for these rows. Writes
  // dlogits, [n.rows, words().count], if it is set. All ranks make this call together.
  template <typename T>
  absl::Status OfRows(const Resources& resources, size_t first, Matrix<const T> n,
                      const LinearView<const T>& output, float gradient_scale, Matrix<T> dlogits);

  // The loss of the tokens whose target is one of this rank's words. Waits for the computation.
  absl::StatusOr<double> Sum(const Resources& resources) const;

 private:
  explicit ShareLosses(LayerShare& share) : share_(&share) {}

  absl::Status PutOthers(const Resources& resources, Matrix<float> logits);

  LayerShare* share_;
  const int32_t* targets_ = nullptr;
  size_t tokens_ = 0;
  Scratch<float> losses_;
  Scratch<kernels::CrossEntropyResult> unread_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_SHARE_LOSS_H_
