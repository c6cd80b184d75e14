#include "tools/kernel-check/step_check.h"

#include <algorithm>
#include <vector>

#include "tools/kernel-check/arrays.h"
#include "tools/kernel-check/device.h"

namespace geminid::kernel_check {
namespace {

using kernels::CudaTensor;
using kernels::GradientType;
using kernels::StateForm;
using kernels::Status;
using kernels::WeightForm;

// Several blocks of the kernel, the last one short, and a last vector of four; as a matrix, rows of
// several blocks of sums.
constexpr size_t kComparedCount = kComparedRows * kComparedColumns;
constexpr size_t kOffWordBytes = 4;
constexpr int kTimedSteps = 20;

struct Variant {
  WeightForm form;
  GradientType type;
  bool in_place;
  size_t shift_bytes;
  StateForm state_form;

  std::string Name() const {
    return std::string(FormName(form)) + " weights, " + GradientTypeName(type) + " gradients, " +
           (state_form == StateForm::kFloat ? "" : "bf16 state, ") +
           (in_place ? "in place" : "out of place") + (shift_bytes == 0 ? "" : ", off 16 bytes");
  }
};

// The forms that training has on a device.
std::vector<Variant> Variants(StateForm state_form) {
  std::vector<Variant> all;
  for (WeightForm form : {WeightForm::kFloat, WeightForm::kSplit}) {
    for (GradientType type : {GradientType::kFloat, GradientType::kBFloat16}) {
      for (bool in_place : {true, false}) {
        for (size_t shift_bytes : {size_t{0}, kOffWordBytes}) {
          all.push_back({form, type, in_place, shift_bytes, state_form});
        }
      }
    }
  }
  return all;
}

// The result of the step, on the host or the device; empty, with the reason, if it failed.
std::vector<std::byte> HostResult(const StepCase& one, const Layout& layout,
                                  std::vector<std::byte> bytes, bool in_place,
                                  std::string* reason) {
  std::vector<std::byte> target(in_place ? 0 : bytes.size());
  std::byte* const to = in_place ? bytes.data() : target.data();
  const Status status =
      one.host_step(layout.Arrays(bytes.data()).View(), layout.Gradient(bytes.data()),
                    kComparedCount, layout.Arrays(to));
  if (status != Status::kOk) {
    *reason = std::string("the host's step says ") + kernels::StatusName(status);
    return {};
  }
  return in_place ? bytes : target;
}

std::vector<std::byte> CudaResult(const StepCase& one, const Layout& layout,
                                  const std::vector<std::byte>& bytes, bool in_place,
                                  std::string* reason) {
  CudaBuffer from(bytes.size());
  CudaBuffer to(bytes.size());
  std::vector<std::byte> result(bytes.size());
  if (!from.CopyFrom(bytes.data(), bytes.size()) || !to.CopyFrom(result.data(), result.size())) {
    *reason = "the device has too little free memory for this check";
    return {};
  }
  const CudaTensor tensor = {
      .old_arrays = layout.Arrays(from.as<std::byte>()).View(),
      .gradient = layout.Gradient(from.as<std::byte>()),
      .count = kComparedCount,
      .new_arrays = layout.Arrays(in_place ? from.as<std::byte>() : to.as<std::byte>())};
  const Status status = one.cuda_step(tensor);
  if (status != Status::kOk) {
    *reason = std::string("the device's step says ") + kernels::StatusName(status);
    return {};
  }
  if (!CudaWait(reason)) return {};
  if (!(in_place ? from : to).CopyTo(result.data(), result.size())) {
    *reason = "the result could not be copied back";
    return {};
  }
  return result;
}

// Empty if all bits agree.
std::string Difference(const StepCase& one, const Variant& variant) {
  const Layout layout(variant.form, variant.type, variant.state_form, one.states, kComparedCount,
                      variant.shift_bytes);
  const std::vector<std::byte> bytes = layout.RandomBytes(/*seed=*/kComparedCount);
  std::string reason;
  const auto expected = HostResult(one, layout, bytes, variant.in_place, &reason);
  if (expected.empty()) return variant.Name() + ": " + reason;
  const auto found = CudaResult(one, layout, bytes, variant.in_place, &reason);
  if (found.empty()) return variant.Name() + ": " + reason;
  const size_t written = layout.written_bytes();
  const auto different =
      std::mismatch(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(written),
                    found.begin())
          .first -
      expected.begin();
  if (static_cast<size_t>(different) == written) return "";
  return variant.Name() + ": " + layout.Describe(static_cast<size_t>(different)) +
         " differs from the host's";
}

// Bytes read and written per second; 0 if this cannot be measured.
double Speed(const StepCase& one, size_t count) {
  const Layout layout(WeightForm::kSplit, GradientType::kBFloat16, one.state_form, one.states,
                      count, 0);
  CudaBuffer buffer(layout.bytes());
  if (!buffer || !CudaFill(&buffer, 0)) return 0;
  const CudaTensor tensor = {.old_arrays = layout.Arrays(buffer.as<std::byte>()).View(),
                             .gradient = layout.Gradient(buffer.as<std::byte>()),
                             .count = count,
                             .new_arrays = layout.Arrays(buffer.as<std::byte>())};
  if (one.cuda_step(tensor) != Status::kOk) return 0;
  CudaTimer timer;
  timer.Start();
  for (int i = 0; i < kTimedSteps; ++i) {
    if (one.cuda_step(tensor) != Status::kOk) return 0;
  }
  const double seconds = timer.StopSeconds();
  constexpr size_t kWeightBytes = 4;  // of WeightForm::kSplit
  const size_t state_bytes =
      kWeightBytes + static_cast<size_t>(one.states) * StateBytes(one.state_form);
  const size_t step_bytes =
      state_bytes * static_cast<size_t>(one.state_reads + 1) +
      GradientBytes(GradientType::kBFloat16) * static_cast<size_t>(one.gradient_reads);
  return static_cast<double>(step_bytes * count * kTimedSteps) / seconds;
}

}  // namespace

Finding CheckStep(const StepCase& one, size_t timed_count) {
  Finding finding;
  finding.name = one.name;
  finding.passed = true;
  for (const Variant& variant : Variants(one.state_form)) {
    finding.detail = Difference(one, variant);
    if (!finding.detail.empty()) {
      finding.passed = false;
      return finding;
    }
    finding.compared += kComparedCount * static_cast<size_t>(1 + one.states);
  }
  if (timed_count != 0 && one.timed) finding.bytes_per_second = Speed(one, timed_count);
  return finding;
}

}  // namespace geminid::kernel_check
