#include "training/transformer/share_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/pages.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

// The logarithm for a rank without words. Its exponential is zero in fp32 beside any other.
constexpr float kNothing = -1e30F;

// The alignment of rows of logits, in elements.
constexpr size_t kRowAlignment = 32;

}  // namespace

size_t LogitsWidth(size_t words) { return base::RoundUp(words + 1, kRowAlignment); }

absl::StatusOr<ShareLosses> ShareLosses::Of(const Resources& resources, LayerShare& share,
                                            const int32_t* targets, size_t tokens) {
  ShareLosses losses(share);
  losses.targets_ = targets;
  losses.tokens_ = tokens;
  GEMINID_ASSIGN_OR_RETURN(losses.losses_, Scratch<float>::Allocate(resources, tokens));
  GEMINID_ASSIGN_OR_RETURN(losses.unread_,
                           Scratch<kernels::CrossEntropyResult>::Allocate(resources, 1));
  return losses;
}

// Fills the column after this rank's words. The logarithm of a row's sum of exponentials is the
// loss with the first word as target, plus that word's logit.
absl::Status ShareLosses::PutOthers(const Resources& resources, Matrix<float> logits) {
  const KernelsOf<float>& math = KernelsFor<float>(resources);
  const size_t rows = logits.rows, used = share_->words().used;
  GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<float>::Allocate(resources, 2 * rows));
  std::vector<float> parts(2 * rows), mine(rows, kNothing);
  if (used > 0) {
    GEMINID_ASSIGN_OR_RETURN(auto first_word, Scratch<int32_t>::Allocate(resources, rows));
    GEMINID_RETURN_IF_ERROR(math.Zero(resources, first_word.data(), rows * sizeof(int32_t)));
    GEMINID_RETURN_IF_ERROR(
        math.CrossEntropy(resources, logits.Cols(0, used), first_word.data(), /*gradient_scale=*/0,
                          /*gradients=*/false, unread_.data(), /*token_loss=*/storage.data()));
    GEMINID_RETURN_IF_ERROR(
        math.Copy(resources, logits.Cols(0, 1), Matrix<float>(storage.data() + rows, rows, 1)));
    GEMINID_RETURN_IF_ERROR(
        math.Download(resources, storage.data(), parts.size() * sizeof(float), parts.data()));
    for (size_t row = 0; row < rows; ++row) mine[row] = parts[row] + parts[rows + row];
  }
  GEMINID_ASSIGN_OR_RETURN(const std::vector<float> all, share_->Gather(mine));
  std::vector<float> others(rows, kNothing);
  for (size_t row = 0; row < rows; ++row) {
    double most = kNothing, sum = 0;
    for (size_t rank = 0; rank < share_->ranks(); ++rank) {
      if (rank != share_->rank()) most = std::max<double>(most, all[rank * rows + row]);
    }
    for (size_t rank = 0; rank < share_->ranks(); ++rank) {
      if (rank != share_->rank()) sum += std::exp(double{all[rank * rows + row]} - most);
    }
    others[row] = static_cast<float>(most + std::log(sum));
  }
  GEMINID_RETURN_IF_ERROR(
      math.Upload(resources, others.data(), rows * sizeof(float), storage.data()));
  return math.Copy(resources, Matrix<const float>(storage.data(), rows, 1), logits.Cols(used, 1));
}

template <typename T>
absl::Status ShareLosses::OfRows(const Resources& resources, size_t first, Matrix<const T> n,
                                 const LinearView<const T>& output, float gradient_scale,
                                 Matrix<T> dlogits) {
  const LayerShare::Rows& words = share_->words();
  const size_t rows = n.rows, width = LogitsWidth(words.count);
  GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<float>::Allocate(resources, rows * width));
  const Matrix<float> logits(storage.data(), rows, width);
  if (words.used > 0) {
    GEMINID_RETURN_IF_ERROR((Forward<T, float>(resources, n, output.Outputs(0, words.used),
                                               logits.Cols(0, words.used))));
  }
  GEMINID_RETURN_IF_ERROR(PutOthers(resources, logits));
  const bool gradients = dlogits.data != nullptr;
  const KernelsOf<float>& wide = KernelsFor<float>(resources);
  GEMINID_RETURN_IF_ERROR(wide.CrossEntropy(resources, logits.Cols(0, words.used + 1),
                                            targets_ + first, gradient_scale, gradients,
                                            unread_.data(), losses_.data() + first));
  if (!gradients) return absl::OkStatus();
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  GEMINID_ASSIGN_OR_RETURN(auto narrow, Scratch<T>::Allocate(resources, rows * width));
  GEMINID_RETURN_IF_ERROR(math.Round(resources, logits.data, logits.size(), narrow.data()));
  const Matrix<const T> all(narrow.data(), rows, width);
  if (words.used > 0) {
    GEMINID_RETURN_IF_ERROR(
        math.Copy(resources, all.Cols(0, words.used), dlogits.Cols(0, words.used)));
  }
  // Zeroes the words beyond the vocabulary. Zero is all bits zero in both types.
  const size_t beyond = words.count - words.used;
  if (beyond == 0) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(math.Zero(resources, narrow.data(), rows * beyond * sizeof(T)));
  return math.Copy(resources, Matrix<const T>(narrow.data(), rows, beyond),
                   dlogits.Cols(words.used, beyond));
}

absl::StatusOr<double> ShareLosses::Sum(const Resources& resources) const {
  const KernelsOf<float>& math = KernelsFor<float>(resources);
  std::vector<float> losses(tokens_);
  std::vector<int32_t> targets(tokens_);
  GEMINID_RETURN_IF_ERROR(
      math.Download(resources, losses_.data(), tokens_ * sizeof(float), losses.data()));
  GEMINID_RETURN_IF_ERROR(
      math.Download(resources, targets_, tokens_ * sizeof(int32_t), targets.data()));
  double sum = 0;
  const auto others = static_cast<int32_t>(share_->words().used);
  for (size_t token = 0; token < tokens_; ++token) {
    if (targets[token] != others) sum += double{losses[token]};
  }
  return sum;
}

template absl::Status ShareLosses::OfRows(const Resources&, size_t, Matrix<const float>,
                                          const LinearView<const float>&, float, Matrix<float>);
template absl::Status ShareLosses::OfRows(const Resources&, size_t, Matrix<const kernels::BFloat16>,
                                          const LinearView<const kernels::BFloat16>&, float,
                                          Matrix<kernels::BFloat16>);

}  // namespace geminid::trainer
