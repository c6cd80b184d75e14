// The cosines and sines of a micro-batch's positions, brought to where the kernels run.
#ifndef GEMINID_TOOLS_TRAINER_ROTARY_UPLOAD_H_
#define GEMINID_TOOLS_TRAINER_ROTARY_UPLOAD_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "tools/trainer/blocks.h"
#include "tools/trainer/micro_batch.h"
#include "tools/trainer/model_kernels.h"
#include "tools/trainer/positions.h"
#include "tools/trainer/scratch.h"

namespace geminid::trainer {

// Of the `length` tokens of each sequence: cosines [length, head_dim / 2], then as many sines. T is
// the type of the weights, whose kernels copy.
template <typename T>
absl::StatusOr<Scratch<float>> UploadRotary(const Resources& resources, const Positions& positions,
                                            size_t length, RotaryPositions* rotary) {
  const size_t width = rotary->head_dim() / 2;
  GEMINID_ASSIGN_OR_RETURN(auto tables, Scratch<float>::Allocate(resources, 2 * length * width));
  float* const cos = tables.data();
  float* const sin = cos + length * width;
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  for (const Positions::Run& run : positions.RunsOf(length)) {
    GEMINID_ASSIGN_OR_RETURN(const RotaryTables computed, rotary->Of(run.position, run.count));
    const size_t bytes = run.count * width * sizeof(float);
    GEMINID_RETURN_IF_ERROR(math.Upload(resources, computed.cos, bytes, cos + run.token * width));
    GEMINID_RETURN_IF_ERROR(math.Upload(resources, computed.sin, bytes, sin + run.token * width));
  }
  return tables;
}

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_ROTARY_UPLOAD_H_
