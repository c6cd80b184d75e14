// The interface through which a model reads its parameters and writes their gradients. In training
// the ZeRO engine implements it, in tests a plain store. The calls have the meaning of those of
// zero::Engine and zero::Operation.
#ifndef GEMINID_TRAINING_NN_PARAMETER_SOURCE_H_
#define GEMINID_TRAINING_NN_PARAMETER_SOURCE_H_

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/zero.h"

namespace geminid::trainer {

// The parameters of one operator while it runs.
class ParameterUse {
 public:
  virtual ~ParameterUse() = default;
  virtual const std::byte* Weight(zero::ParameterId id) const = 0;
  virtual std::byte* Gradient(zero::ParameterId id) = 0;
  virtual bool GradientAccumulates(zero::ParameterId id) const = 0;
  virtual absl::Status GradientWritten(zero::ParameterId id) = 0;
  virtual absl::Status Finish() = 0;
};

class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  virtual absl::Status BeginMicroBatch() = 0;
  virtual absl::StatusOr<std::unique_ptr<ParameterUse>> Use(
      zero::Pass pass, std::span<const zero::ParameterId> parameters) = 0;
  virtual zero::Workspace& workspace() = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_PARAMETER_SOURCE_H_
