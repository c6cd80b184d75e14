#include "training/nn/parallel/tensor/parallel_norm.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "training/nn/parallel/tensor/block_size.h"

namespace geminid::collectives {

namespace {
constexpr char kParameters[] = "parameters of a sharded norm";
}  // namespace

absl::StatusOr<NormBlocks> BlocksOf(const TensorGrid& grid, const NormOptions& options, int rank) {
  const ActivationLayout x = LayoutOfX(grid.mode(), LinearRole::kFirst);
  const Axes pieces = LayoutOfFeatures(grid.mode()).pieces;
  NormBlocks blocks;
  GEMINID_ASSIGN_OR_RETURN(blocks.x.rows, PieceOf(grid, x.tokens, "tokens", options.tokens, rank));
  GEMINID_ASSIGN_OR_RETURN(blocks.x.columns,
                           PieceOf(grid, x.features, "features", options.hidden, rank));
  GEMINID_ASSIGN_OR_RETURN(blocks.parameter,
                           PieceOf(grid, pieces, "features", options.hidden, rank));
  return blocks;
}

absl::StatusOr<std::unique_ptr<ParallelNorm>> ParallelNorm::Make(TensorGroups& groups,
                                                                 const NormOptions& options,
                                                                 LinearScratch& scratch) {
  if (!std::isfinite(options.epsilon) || options.epsilon < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a norm's epsilon of %g: it is finite and not negative", options.epsilon));
  }
  GEMINID_ASSIGN_OR_RETURN(const NormBlocks blocks,
                           BlocksOf(groups.grid(), options, groups.rank()));
  return std::unique_ptr<ParallelNorm>(new ParallelNorm(groups, options, blocks, scratch));
}

ParallelNorm::ParallelNorm(TensorGroups& groups, const NormOptions& options,
                           const NormBlocks& blocks, LinearScratch& scratch)
    : groups_(groups),
      options_(options),
      blocks_(blocks),
      scratch_(scratch),
      parameter_(LayoutOfFeatures(groups.grid().mode())),
      features_(LayoutOfX(groups.grid().mode(), LinearRole::kFirst).features),
      part_{.rows = blocks.x.rows.count, .cols = blocks.x.columns.count},
      sums_(options.kind == NormKind::kRms ? 1 : 2) {}

const float* ParallelNorm::MeanIn(std::span<const float> statistics) const {
  return is_rms() ? nullptr : statistics.data() + rows();
}

absl::StatusOr<const float*> ParallelNorm::Gathered(std::span<const float> parameter,
                                                    std::span<float> whole) {
  if (whole.empty() || parameter.empty()) return parameter.data();
  GEMINID_RETURN_IF_ERROR(groups_.Along(parameter_.gathered.front()).AllGather(parameter, whole));
  return whole.data();
}

absl::Status ParallelNorm::AddUp(std::span<const float> of_features, std::span<float> kept) {
  if (!parameter_.gathered.empty()) {
    GEMINID_RETURN_IF_ERROR(
        groups_.Along(parameter_.gathered.front()).ReduceScatter(of_features, kept));
  }
  return groups_.AddAlong(parameter_.summed, kept);
}

absl::Status ParallelNorm::AddRows(std::span<float> sums) {
  GEMINID_RETURN_IF_ERROR(groups_.AddAlong(features_, sums));
  return scratch_.math().NormMeans(options_.hidden, sums);
}

absl::Status ParallelNorm::Forward(std::span<const float> x, std::span<const float> gamma,
                                   std::span<const float> beta, std::span<float> statistics,
                                   std::span<float> y) {
  const size_t kept = blocks_.parameter.count;
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("X", x.size(), blocks_.x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("gamma", gamma.size(), kept));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("beta", beta.size(), is_rms() ? 0 : kept));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("statistics", statistics.size(), this->statistics()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("Y", y.size(), blocks_.x.elements()));
  const size_t gathered = parameter_.gathered.empty() ? 0 : part_.cols;
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock parameters, Take(kParameters, sums_ * gathered));
  LayerMath& math = scratch_.math();
  const float* const mean = MeanIn(statistics);
  if (!is_rms()) {
    const std::span<float> sums = statistics.last(rows());
    GEMINID_RETURN_IF_ERROR(math.NormSum(part_, x.data(), sums.data()));
    GEMINID_RETURN_IF_ERROR(AddRows(sums));
  }
  const std::span<float> rstd = statistics.first(rows());
  GEMINID_RETURN_IF_ERROR(math.NormSquares(part_, x.data(), mean, rstd.data()));
  GEMINID_RETURN_IF_ERROR(AddRows(rstd));
  GEMINID_RETURN_IF_ERROR(math.NormInverseRoots(options_.epsilon, rstd));
  GEMINID_ASSIGN_OR_RETURN(const float* const scale,
                           Gathered(gamma, parameters.all().first(gathered)));
  GEMINID_ASSIGN_OR_RETURN(const float* const shift,
                           Gathered(beta, parameters.all().last(gathered)));
  return math.NormForward(part_, x.data(), {mean, rstd.data(), scale, shift}, y.data());
}

absl::Status ParallelNorm::Backward(std::span<const float> x, std::span<const float> gamma,
                                    std::span<const float> statistics, std::span<const float> dy,
                                    const Gradients& gradients) {
  const size_t kept = blocks_.parameter.count;
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("X", x.size(), blocks_.x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("gamma", gamma.size(), kept));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("statistics", statistics.size(), this->statistics()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dY", dy.size(), blocks_.x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("dX", gradients.x.size(), blocks_.x.elements()));
  GEMINID_RETURN_IF_ERROR(CheckBlockSize("gamma's gradient", gradients.gamma.size(), kept));
  GEMINID_RETURN_IF_ERROR(
      CheckBlockSize("beta's gradient", gradients.beta.size(), is_rms() ? 0 : kept));
  // The parameters of this rank's features, if the rank stores only some of them.
  const size_t gathered = parameter_.gathered.empty() ? 0 : part_.cols;
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock parameters, Take(kParameters, gathered));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock of_features,
                           Take("gradients of a sharded norm", sums_ * gathered));
  GEMINID_ASSIGN_OR_RETURN(const FloatBlock of_rows, Take("sums of rows", sums_ * rows()));
  GEMINID_ASSIGN_OR_RETURN(const float* const scale, Gathered(gamma, parameters.all()));
  const kernels::NormPartBackwardArgs args = {.dy = dy.data(),
                                              .x = x.data(),
                                              .gamma = scale,
                                              .mean = MeanIn(statistics),
                                              .rstd = statistics.data()};
  const std::span<float> sums = of_rows.all();
  float* const second = is_rms() ? nullptr : sums.data() + rows();
  LayerMath& math = scratch_.math();
  GEMINID_RETURN_IF_ERROR(math.NormGradientSums(part_, args, sums.data(), second));
  GEMINID_RETURN_IF_ERROR(AddRows(sums));
  const bool is_kept = gathered == 0;
  const std::span<float> whole = of_features.all();
  const std::span<float> dgamma = is_kept ? gradients.gamma : whole.first(part_.cols);
  const std::span<float> dbeta =
      is_rms() ? std::span<float>() : (is_kept ? gradients.beta : whole.last(part_.cols));
  GEMINID_RETURN_IF_ERROR(TellIfRefused(
      groups_, math.NormBackward(
                   part_, args, sums.data(), second,
                   {.dx = gradients.x.data(), .dgamma = dgamma.data(), .dbeta = dbeta.data()})));
  GEMINID_RETURN_IF_ERROR(AddUp(dgamma, gradients.gamma));
  return is_rms() ? absl::OkStatus() : AddUp(dbeta, gradients.beta);
}

}  // namespace geminid::collectives
