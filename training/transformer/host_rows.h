// A dense matrix of the model where the host reads and writes it: the matrix itself if the host
// computes, else a copy in host memory.
#ifndef GEMINID_TRAINING_TRANSFORMER_HOST_ROWS_H_
#define GEMINID_TRAINING_TRANSFORMER_HOST_ROWS_H_

#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "training/nn/blocks.h"
#include "training/nn/model_kernels.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {

template <typename T>
class HostRows {
 public:
  using Value = std::remove_const_t<T>;

  // With the matrix's values. Copies are in `memory`, of the host.
  static absl::StatusOr<HostRows> Of(const Resources& resources, collectives::Memory& memory,
                                     Matrix<T> matrix) {
    GEMINID_ASSIGN_OR_RETURN(HostRows made, Unread(resources, memory, matrix));
    if (made.copy_.size() > 0) {
      GEMINID_RETURN_IF_ERROR(KernelsFor<Value>(resources).Download(
          resources, matrix.data, matrix.size() * sizeof(T), made.copy_.data()));
    }
    return made;
  }
  // With undefined values, all of which the caller writes.
  static absl::StatusOr<HostRows> Unread(const Resources& resources, collectives::Memory& memory,
                                         Matrix<T> matrix) {
    HostRows made;
    made.matrix_ = made.rows_ = matrix;
    if (resources.math.memory() == ModelKernels::Memory::kHost) return made;
    GEMINID_ASSIGN_OR_RETURN(made.copy_, collectives::ElementBlock<Value>::Allocate(
                                             memory, "rows of experts", matrix.size()));
    made.rows_ = Matrix<T>(made.copy_.data(), matrix.rows, matrix.cols);
    return made;
  }

  const Matrix<T>& rows() const { return rows_; }
  // Writes the values to the matrix.
  absl::Status GiveBack(const Resources& resources) const {
    if (rows_.data == matrix_.data) return absl::OkStatus();
    return KernelsFor<Value>(resources).Upload(resources, rows_.data, rows_.size() * sizeof(T),
                                               matrix_.data);
  }

 private:
  HostRows() = default;

  Matrix<T> matrix_, rows_;
  collectives::ElementBlock<Value> copy_;
};

// Host memory for copies of a sublayer's rows. If the host computes, there are none.
inline collectives::Memory& MemoryOfRows(const SublayerContext& context) {
  return context.cut.memory == nullptr ? collectives::HeapMemory() : *context.cut.memory;
}

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_HOST_ROWS_H_
