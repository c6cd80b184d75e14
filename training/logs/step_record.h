// The figures of one step that a log records.
#ifndef GEMINID_TRAINING_LOGS_STEP_RECORD_H_
#define GEMINID_TRAINING_LOGS_STEP_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace geminid::trainer {

struct StepRecord {
  uint64_t step = 0;  // done
  absl::Time time;
  double loss = 0;
  std::optional<double> validation_loss = std::nullopt;  // if it was measured after this step
  std::optional<double> validation_accuracy = std::nullopt;  // likewise, of a classifier
  std::optional<double> epoch = std::nullopt;            // epochs done; unset: run without epochs
  double gradient_norm = 0;                              // before clipping
  double learning_rate = 0;
  std::optional<uint64_t> micro_batches = std::nullopt;  // of this step; unset: all are alike
  std::string batch_change{};  // why the next steps have another number; empty: they do not
  double loss_scale = 1;
  bool overflow = false;
  uint64_t tokens = 0;  // of all steps so far
  double seconds = 0;   // of this step
  double tokens_per_second = 0;
  double flops_per_second = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_STEP_RECORD_H_
