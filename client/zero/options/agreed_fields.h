// What ranks must be given alike, or each would train a model of its own.
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
  std::string value;  // as text that has all digits

  uint64_t Hash() const;
};
using AgreedFields = std::vector<AgreedField>;

// Of Engine::Create: what decides which bits the weights get, and which collectives ranks call.
AgreedFields FieldsOf(const std::vector<Parameter>& parameters, const Options& options);
// Of a step; `clip_norm` is what it is clipped to.
AgreedFields FieldsOf(const Engine::StepInput& input, double clip_norm);

// What ranks add up, beside other numbers, to see whether all have the same fields: two hashes and
// their squares. Over n ranks with one hash n times the sum of the squares is the square of the
// sum. Hashes have 20 bits: sums are exact in float64 for up to 8192 ranks.
using FieldsDigest = std::array<double, 4>;
FieldsDigest DigestOf(const AgreedFields& fields);
// `sums`: over `ranks` ranks, of as many numbers as a digest has.
bool SameOnAll(std::span<const double> sums, int ranks);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_OPTIONS_AGREED_FIELDS_H_
