#include "client/device/segment_arrays.h"

#include <type_traits>

namespace geminid::device {
namespace {

using kernels::GradientType;
using kernels::ParameterArrays;
using kernels::StateForm;
using kernels::WeightForm;

uint64_t BytesOf(GradientType type) {
  return type == GradientType::kFloat ? sizeof(float) : sizeof(kernels::BFloat16);
}

// Calls `visit` with each array that the form has. Arrays: const or mutable ones.
template <typename Arrays, typename Visit>
void ForEach(Arrays& arrays, Visit visit) {
  const bool split = arrays.form == WeightForm::kSplit;
  if (!split) visit(arrays.master);
  if (split) visit(arrays.bfloat16);
  if (split) visit(arrays.remainder);
  if (arrays.state_form == StateForm::kBFloat16) {
    for (auto& state : arrays.small_state) visit(state);
  } else {
    for (auto& state : arrays.state) visit(state);
  }
}

template <typename Arrays>
std::vector<ArrayOf> List(const Arrays& arrays) {
  std::vector<ArrayOf> list;
  ForEach(arrays, [&](const auto* array) {
    list.push_back({reinterpret_cast<const std::byte*>(array), sizeof(*array)});
  });
  return list;
}

// Returns the number of places used.
template <typename Arrays>
size_t Place(std::span<std::byte* const> places, Arrays* arrays) {
  size_t next = 0;
  ForEach(*arrays, [&](auto& array) {
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(places[next++]);
  });
  return next;
}

}  // namespace

std::vector<ArrayOf> ArraysOf(const kernels::Segment& segment) {
  std::vector<ArrayOf> list = List(segment.arrays);
  list.push_back(
      {static_cast<const std::byte*>(segment.gradient.data), BytesOf(segment.gradient.type)});
  return list;
}

std::vector<ArrayOf> ArraysOf(const ParameterArrays& arrays) { return List(arrays); }

kernels::Segment WithArrays(const kernels::Segment& segment, std::span<std::byte* const> places) {
  kernels::Segment there = segment;
  const size_t gradient = Place(places, &there.arrays);
  there.gradient.data = places[gradient];
  return there;
}

ParameterArrays WithArrays(const ParameterArrays& arrays, std::span<std::byte* const> places) {
  ParameterArrays there = arrays;
  Place(places, &there);
  return there;
}

kernels::Segment PartOf(const kernels::Segment& segment, uint64_t begin, size_t count) {
  kernels::Segment part = segment;
  if (part.tensor != kernels::kNoTensor) part.offset += begin;
  part.count = count;
  part.arrays = kernels::Advance(segment.arrays, begin);
  part.gradient = kernels::Advance(segment.gradient, begin);
  return part;
}

}  // namespace geminid::device
