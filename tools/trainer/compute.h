// The kernels as the model calls them: on views of matrices, with scratch from the workspace, and
// with errors as absl::Status. T is float or kernels::BFloat16, the type of weights and
// activations.
#ifndef GEMINID_TOOLS_TRAINER_COMPUTE_H_
#define GEMINID_TOOLS_TRAINER_COMPUTE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "geminid/zero.h"
#include "kernels/runtime/common/absl_status.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/parallel/tasks.h"
#include "tools/trainer/dropout.h"
#include "tools/trainer/parameter_source.h"
#include "tools/trainer/parameters.h"

namespace geminid::trainer {

// Rows of `cols` elements, `stride` elements apart. Does not own them.
template <typename T>
struct Matrix {
  T* data = nullptr;
  size_t rows = 0;
  size_t cols = 0;
  size_t stride = 0;

  Matrix() = default;
  Matrix(T* first, size_t row_count, size_t col_count)
      : Matrix(first, row_count, col_count, col_count) {}
  Matrix(T* first, size_t row_count, size_t col_count, size_t row_stride)
      : data(first), rows(row_count), cols(col_count), stride(row_stride) {}
  operator Matrix<const T>() const { return {data, rows, cols, stride}; }  // NOLINT: implicit

  Matrix Rows(size_t first, size_t count) const {
    return {data + first * stride, count, cols, stride};
  }
  Matrix Cols(size_t first, size_t count) const { return {data + first, rows, count, stride}; }
  size_t size() const { return rows * cols; }  // of a dense matrix
};

// The adapter of a linear layer, or of some of its inputs or outputs. Of a layer's gradient, `da`
// and `db` are where the gradients are added.
template <typename T>
struct AdapterView {
  const T* a = nullptr;  // [rank, in], rows a_stride apart; null: there is none
  const T* b = nullptr;  // [out, rank], dense
  T* da = nullptr;
  T* db = nullptr;
  size_t rank = 0;
  size_t a_stride = 0;
  float scale = 0;
};

// The matrix of a linear layer in -> out, or of some of its inputs or outputs. Of a gradient, null
// where the parameter is frozen.
template <typename T>
struct LinearView {
  T* weight = nullptr;
  T* bias = nullptr;  // nullable
  Layout layout = Layout::kOutIn;
  size_t in = 0;
  size_t out = 0;
  size_t stride = 0;
  AdapterView<std::remove_const_t<T>> adapter = {};

  LinearView Outputs(size_t first, size_t count) const {
    LinearView part = *this;
    if (weight != nullptr) part.weight += first * (layout == Layout::kOutIn ? stride : 1);
    if (bias != nullptr) part.bias += first;
    if (adapter.b != nullptr) part.adapter.b += first * adapter.rank;
    if (adapter.db != nullptr) part.adapter.db += first * adapter.rank;
    part.out = count;
    return part;
  }
  // The bias is added once, not per part: it stays behind.
  LinearView Inputs(size_t first, size_t count) const {
    LinearView part = *this;
    if (weight != nullptr) part.weight += first * (layout == Layout::kOutIn ? 1 : stride);
    if (adapter.a != nullptr) part.adapter.a += first;
    if (adapter.da != nullptr) part.adapter.da += first;
    part.bias = nullptr;
    part.in = count;
    return part;
  }
};

// What a computation takes. Threads never change a bit.
struct Resources {
  zero::Workspace& workspace;
  kernels::ThreadPool* threads = nullptr;  // none: the calling thread alone
  // Forward passes give each token the same bits whichever others are computed with it.
  bool rows_alone = false;
};

// A block of workspace as elements of one type.
template <typename T>
class Scratch {
 public:
  static absl::StatusOr<Scratch> Allocate(const Resources& resources, size_t count) {
    absl::StatusOr<zero::Workspace::Block> block = resources.workspace.Allocate(count * sizeof(T));
    if (!block.ok()) return block.status();
    return Scratch(std::move(block).value());
  }
  Scratch() = default;
  T* data() const { return reinterpret_cast<T*>(block_.data()); }
  // Gives the bytes back now.
  void Free() { zero::Workspace::Block gone = std::move(block_); }

 private:
  explicit Scratch(zero::Workspace::Block block) : block_(std::move(block)) {}
  zero::Workspace::Block block_;
};

// Calls work(first, count) -> absl::Status for pieces of `rows` rows of `cols` elements, on the
// threads, for work of which any split gives the same bits.
template <typename Work>
absl::Status ForRows(const Resources& resources, size_t rows, size_t cols, const Work& work) {
  constexpr size_t kPieceElements = 16384;  // some microseconds of work
  const size_t piece = std::max<size_t>(1, kPieceElements / std::max<size_t>(1, cols));
  const size_t pieces = kernels::GranuleCount(rows, piece);
  if (resources.threads == nullptr || pieces <= 1) return work(size_t{0}, rows);
  std::vector<absl::Status> failed(resources.threads->threads());
  const kernels::Status status =
      kernels::RunTasks(resources.threads, pieces, [&](size_t index, size_t thread) {
        const kernels::Granule rows_of = kernels::GranuleAt(index, rows, piece);
        failed[thread] = work(rows_of.begin, rows_of.end - rows_of.begin);
        return failed[thread].ok() ? kernels::Status::kOk : kernels::Status::kUnsupported;
      });
  if (status == kernels::Status::kOk) return absl::OkStatus();
  for (absl::Status& one : failed) {
    if (!one.ok()) return std::move(one);
  }
  return absl::InternalError("a thread's work failed");
}

// The gradient of what a half adds, before its dropout: `gradient` itself where there is none.
template <typename T>
struct Dropped {
  Scratch<T> storage;
  const T* data = nullptr;

  static absl::StatusOr<Dropped> Of(const Resources& resources, const DropoutPlace& place,
                                    size_t tokens, const T* gradient) {
    Dropped dropped;
    dropped.data = gradient;
    if (!place.dropout.active()) return dropped;
    GEMINID_ASSIGN_OR_RETURN(dropped.storage,
                             Scratch<T>::Allocate(resources, tokens * place.hidden));
    T* const out = dropped.storage.data();
    GEMINID_RETURN_IF_ERROR(
        ForRows(resources, tokens, place.hidden, [&](size_t first, size_t count) {
          const size_t at = first * place.hidden;
          ApplyDropout(place, first, count, gradient + at, out + at);
          return absl::OkStatus();
        }));
    dropped.data = dropped.storage.data();
    return dropped;
  }
};

// Parameters of the operator that `use` holds.
template <typename T>
const T* WeightOf(const ParameterUse& use, ParameterId id) {
  return reinterpret_cast<const T*>(use.Weight(id));
}
template <typename T>
T* GradientOf(ParameterUse& use, ParameterId id) {
  return reinterpret_cast<T*>(use.Gradient(id));
}
template <typename T>
LinearView<const T> WeightOf(const ParameterUse& use, const LinearPlace& place);
template <typename T>
LinearView<T> GradientOf(ParameterUse& use, const LinearPlace& place);
// Of those that are trained.
absl::Status GradientsWritten(ParameterUse& use, std::span<const ParameterId> ids);

// The gradients of an adapter are added piece by piece: before the first piece, zeros.
template <typename T>
void ClearAdapterGradients(ParameterUse& use, const LinearPlace& place);

// y = x W + b, or y += x W + b. Out is T or float.
template <typename T, typename Out>
absl::Status Forward(const Resources& resources, Matrix<const T> x, const LinearView<const T>& w,
                     Matrix<Out> y, bool accumulate = false);

// dx = dy W^T, or dx += dy W^T.
template <typename T, typename Out>
absl::Status BackwardInput(const Resources& resources, Matrix<const T> dy,
                           const LinearView<const T>& w, Matrix<Out> dx, bool accumulate = false);

// db = the sum of the rows of dy, which is dense. Nothing for a null db.
template <typename T>
absl::Status BackwardBias(const Resources& resources, Matrix<const T> dy, T* db);

// dW = x^T dy, and the gradients of the bias and the adapter if there are any. Nothing for those
// that are frozen.
template <typename T>
absl::Status BackwardWeight(const Resources& resources, Matrix<const T> dy, Matrix<const T> x,
                            const LinearView<T>& dw, bool accumulate = false);

// out = in, rounded to T. Dense. For T = float a copy.
absl::Status Round(const Resources& resources, const float* in, size_t count,
                   kernels::BFloat16* out);
absl::Status Round(const Resources& resources, const float* in, size_t count, float* out);
// out = in, exactly.
absl::Status Widen(const Resources& resources, const kernels::BFloat16* in, size_t count,
                   float* out);
absl::Status Widen(const Resources& resources, const float* in, size_t count, float* out);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_COMPUTE_H_
