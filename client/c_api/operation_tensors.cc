#include "client/c_api/operation_tensors.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace geminid::c_api {

absl::StatusOr<const std::byte*> WeightOf(const zero::Operation& operation, uint64_t number,
                                          zero::ParameterId id) {
  if (const std::byte* const weight = operation.Weight(id); weight != nullptr) return weight;
  return absl::InvalidArgumentError(absl::StrCat(
      "operation ", number, " has no weight of parameter ", static_cast<uint32_t>(id),
      ": the operation does not use the parameter, or the gradient replaced the weight"));
}

absl::StatusOr<std::byte*> GradientOf(zero::Operation& operation, uint64_t number,
                                      zero::ParameterId id) {
  if (std::byte* const gradient = operation.Gradient(id); gradient != nullptr) return gradient;
  return absl::InvalidArgumentError(absl::StrCat(
      "operation ", number, " has no gradient of parameter ", static_cast<uint32_t>(id),
      ": only trained parameters have one, in GEMINID_BACKWARD, until they got as many "
      "as backward_uses says"));
}

}  // namespace geminid::c_api
