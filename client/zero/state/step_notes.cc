#include "client/zero/state/step_notes.h"

#include <array>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/shm/crc32c.h"

namespace geminid::zero {
namespace {

// The rates that a tensor may have of its own, in the order of the note.
constexpr std::array kRates = {&TensorRates::learning_rate, &TensorRates::weight_decay,
                               &TensorRates::beta1, &TensorRates::beta2, &TensorRates::epsilon};

}  // namespace

struct StepNotes::Header {
  uint64_t epoch;
  uint64_t step;
  double learning_rate;
  double grad_scale;
  double gradient_norm;
  uint32_t tensors;
  uint32_t crc32c;  // of the whole slot, with 0 in this field
};

struct StepNotes::Rates {
  double values[kRates.size()];
  uint8_t given[kRates.size()];
  uint8_t skip;
  uint8_t reserved[2];
};

uint64_t StepNotes::BytesFor(size_t tensors) {
  return 2 * (sizeof(Header) + tensors * sizeof(Rates));
}

std::span<std::byte> StepNotes::Slot(uint64_t epoch) const {
  const size_t bytes = BytesFor(tensors_) / 2;
  return {memory_ + (epoch % 2) * bytes, bytes};
}

void StepNotes::Write(uint64_t epoch, const StepNote& note) {
  const std::vector<std::byte> made = Encode(epoch, tensors_, note);
  std::memcpy(Slot(epoch).data(), made.data(), made.size());
}

absl::Status StepNotes::Read(uint64_t epoch, StepNote* note) const {
  const std::span<const std::byte> slot = Slot(epoch);
  return Decode(epoch, tensors_, {slot.begin(), slot.end()}, note);
}

std::vector<std::byte> StepNotes::Encode(uint64_t epoch, size_t tensors, const StepNote& note) {
  std::vector<std::byte> made(BytesFor(tensors) / 2);
  auto* const header = reinterpret_cast<Header*>(made.data());
  auto* const rates = reinterpret_cast<Rates*>(header + 1);
  header->epoch = epoch;
  header->step = note.scalars.step;
  header->learning_rate = note.scalars.learning_rate;
  header->grad_scale = note.scalars.grad_scale;
  header->gradient_norm = note.scalars.gradient_norm;
  header->tensors = static_cast<uint32_t>(tensors);
  for (size_t t = 0; t < tensors && t < note.rates.size(); ++t) {
    const TensorRates& from = note.rates[t];
    for (size_t i = 0; i < kRates.size(); ++i) {
      const std::optional<double>& rate = from.*kRates[i];
      rates[t].values[i] = rate.value_or(0);
      rates[t].given[i] = rate.has_value() ? 1 : 0;
    }
    rates[t].skip = from.skip ? 1 : 0;
  }
  header->crc32c = shm::Crc32c(made.data(), made.size());
  return made;
}

absl::Status StepNotes::Decode(uint64_t epoch, size_t tensors, std::vector<std::byte> slot,
                               StepNote* note) {
  auto* const header = reinterpret_cast<Header*>(slot.data());
  const auto* const rates = reinterpret_cast<const Rates*>(header + 1);
  const uint32_t crc32c = header->crc32c;
  header->crc32c = 0;
  if (header->epoch != epoch || header->tensors != tensors ||
      crc32c != shm::Crc32c(slot.data(), slot.size())) {
    return absl::DataLossError(
        absl::StrCat("the hyperparameters of the step of epoch ", epoch, " were never recorded"));
  }
  note->scalars = {.step = header->step,
                   .learning_rate = header->learning_rate,
                   .grad_scale = header->grad_scale,
                   .gradient_norm = header->gradient_norm};
  note->rates.assign(tensors, {});
  for (size_t t = 0; t < tensors; ++t) {
    TensorRates& to = note->rates[t];
    for (size_t i = 0; i < kRates.size(); ++i) {
      if (rates[t].given[i] != 0) to.*kRates[i] = rates[t].values[i];
    }
    to.skip = rates[t].skip != 0;
  }
  return absl::OkStatus();
}

}  // namespace geminid::zero
