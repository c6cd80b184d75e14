// The loss of a rank that has some of the vocabulary (training/nn/layer_share.h). No rank has a
// whole row of logits. It has one number for the other ranks' words, the logarithm of the sum of
// their exponentials, which stands in its own row as one more word.
#ifndef GEMINID_TRAINING_TRANSFORMER_SHARE_LOSS_H_
#define GEMINID_TRAINING_TRANSFORMER_SHARE_LOSS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/nn/compute.h"
#include "training/nn/layer_share.h"

namespace geminid::trainer {

// Elements of a row of logits: of so many words, one more, and what aligns the rows for products.
size_t LogitsWidth(size_t words);

// The losses of all tokens, some rows at a time.
class ShareLosses {
 public:
  // `targets`: LayerShare::TargetsHere, as many as there are `tokens`, where the model computes.
  static absl::StatusOr<ShareLosses> Of(const Resources& resources, LayerShare& share,
                                        const int32_t* targets, size_t tokens);

  // Of rows [first, first + n.rows), of which `n` is what the output layer reads. Writes dlogits,
  // [n.rows, words().count], if there is any. All ranks together.
  template <typename T>
  absl::Status OfRows(const Resources& resources, size_t first, Matrix<const T> n,
                      const LinearView<const T>& output, float gradient_scale, Matrix<T> dlogits);

  // Of the tokens whose target is this rank's. Waits for them.
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
