// The rates and scalars of a step's update. They are noted before the step's commit record. So the
// replacement of this rank, or of a rank that had not committed the step, finishes an interrupted
// update with the same bits.
//
// A chunk of host memory has two slots for notes, as there are two commit records. The step's epoch
// says which slot it uses.
#ifndef GEMINID_CLIENT_ZERO_STATE_STEP_NOTES_H_
#define GEMINID_CLIENT_ZERO_STATE_STEP_NOTES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/optimizers/sharded_step.h"

namespace geminid::zero {

// The rates with which a step updates one tensor.
struct TensorRates {
  std::optional<double> learning_rate = {};  // in place of the step's
  std::optional<double> weight_decay = {};   // in place of the tensor's own
  // These replace the optimizer's values.
  std::optional<double> beta1 = {};
  std::optional<double> beta2 = {};
  std::optional<double> epsilon = {};
  bool skip = false;  // weights and state stay as they are
};

struct StepNote {
  kernels::StepScalars scalars;
  std::vector<TensorRates> rates;  // by tensor
};

// Not thread-safe.
class StepNotes {
 public:
  static uint64_t BytesFor(size_t tensors);
  // `memory` has BytesFor(tensors), aligned to 8, and outlives this.
  StepNotes(std::byte* memory, size_t tensors) : memory_(memory), tensors_(tensors) {}

  // `epoch` is the epoch that the step's record will have.
  void Write(uint64_t epoch, const StepNote& note);
  // DATA_LOSS if the epoch's note was not written.
  absl::Status Read(uint64_t epoch, StepNote* note) const;

  // A note in the form of a slot, for another rank of the run.
  static std::vector<std::byte> Encode(uint64_t epoch, size_t tensors, const StepNote& note);
  // DATA_LOSS if the bytes are not a note of this epoch and this number of tensors.
  static absl::Status Decode(uint64_t epoch, size_t tensors, std::vector<std::byte> slot,
                             StepNote* note);

 private:
  struct Header;
  struct Rates;
  std::span<std::byte> Slot(uint64_t epoch) const;

  std::byte* const memory_;
  const size_t tensors_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STEP_NOTES_H_
