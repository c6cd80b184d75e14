// Copies the cosines and sines of a micro-batch's positions to the memory that the kernels read.
#ifndef GEMINID_TRAINING_NN_ROTARY_UPLOAD_H_
#define GEMINID_TRAINING_NN_ROTARY_UPLOAD_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "training/nn/blocks.h"
#include "training/nn/micro_batch.h"
#include "training/nn/model_kernels.h"
#include "training/nn/positions.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {

// On a device the tables of the latest micro-batch stay in the workspace, so that micro-batches
// with the same positions upload them once. One thread at a time.
class UploadedRotary {
 public:
  // A computation holds its tables, because a later micro-batch may have others.
  struct Tables {
    Scratch<float> storage;  // cosines [length, rotating columns / 2], then as many sines
    Positions positions;
    size_t length = 0;
  };

  explicit UploadedRotary(const ModelConfig& config) : rotary_(config) {}

  // The tables of the `length` tokens of each sequence. T is the type of the weights, whose kernels
  // copy the tables.
  template <typename T>
  absl::StatusOr<std::shared_ptr<const Tables>> Of(const Resources& resources,
                                                   const Positions& positions, size_t length) {
    if (latest_ != nullptr && latest_->storage.IsOf(resources.workspace) &&
        latest_->positions == positions && latest_->length == length) {
      return latest_;
    }
    latest_ = nullptr;  // frees the old tables first, unless a micro-batch still holds them
    auto tables = std::make_shared<Tables>();
    tables->positions = positions;
    tables->length = length;
    GEMINID_ASSIGN_OR_RETURN(tables->storage,
                             Scratch<float>::Allocate(resources, 2 * length * width()));
    GEMINID_RETURN_IF_ERROR(Upload<T>(resources, *tables));
    if (resources.math.memory() == ModelKernels::Memory::kDevice) latest_ = tables;
    return std::shared_ptr<const Tables>(std::move(tables));
  }

  RotaryTables Pointers(const Tables& tables) const {
    return {.cos = tables.storage.data(), .sin = tables.storage.data() + tables.length * width()};
  }

 private:
  size_t width() const { return rotary_.columns() / 2; }

  template <typename T>
  absl::Status Upload(const Resources& resources, const Tables& tables) {
    float* const cos = tables.storage.data();
    float* const sin = cos + tables.length * width();
    const KernelsOf<T>& math = KernelsFor<T>(resources);
    for (const Positions::Run& run : tables.positions.RunsOf(tables.length)) {
      GEMINID_ASSIGN_OR_RETURN(const RotaryTables computed, rotary_.Of(run.position, run.count));
      const size_t bytes = run.count * width() * sizeof(float);
      const size_t at = run.token * width();
      GEMINID_RETURN_IF_ERROR(math.Upload(resources, computed.cos, bytes, cos + at));
      GEMINID_RETURN_IF_ERROR(math.Upload(resources, computed.sin, bytes, sin + at));
    }
    return absl::OkStatus();
  }

  RotaryPositions rotary_;
  std::shared_ptr<const Tables> latest_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_ROTARY_UPLOAD_H_
