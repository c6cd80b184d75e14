// Arguments that all ranks must pass alike; otherwise each rank would train another model.
#ifndef GEMINID_CLIENT_ZERO_OPTIONS_AGREED_FIELDS_H_
#define GEMINID_CLIENT_ZERO_OPTIONS_AGREED_FIELDS_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "geminid/zero.h"

namespace geminid::zero {

struct AgreedField {
  std::string name;
  std::string value;  // as text, with all digits

  uint64_t Hash() const;
};
using AgreedFields = std::vector<AgreedField>;

// For Engine::Create: all arguments that affect the weights' bits or which collectives ranks call.
AgreedFields FieldsOf(const std::vector<Parameter>& parameters, const Options& options);
// For a step. `clip_norm` is the norm that its gradients are clipped to.
AgreedFields FieldsOf(const Engine::StepInput& input, double clip_norm);

// Ranks sum these numbers, together with others, to check that all have the same fields: two hashes
// and their squares. If n ranks have one hash, n times the sum of squares equals the square of the
// sum. Hashes have 20 bits, so sums are exact in float64 for up to 8192 ranks.
using FieldsDigest = std::array<double, 4>;
FieldsDigest DigestOf(const AgreedFields& fields);
// `sums` has as many numbers as a digest, each summed over `ranks` ranks.
bool SameOnAll(std::span<const double> sums, int ranks);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_OPTIONS_AGREED_FIELDS_H_
