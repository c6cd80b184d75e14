#include "daemon/memory/admission.h"

#include <algorithm>
#include <utility>

namespace geminid::memory {

Admission::Hold::Hold(Hold&& other) noexcept
    : admission_(std::exchange(other.admission_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Admission::Hold& Admission::Hold::operator=(Hold&& other) noexcept {
  std::swap(admission_, other.admission_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void Admission::Hold::Made(uint64_t bytes) {
  if (admission_ == nullptr) return;
  const std::lock_guard lock(admission_->mutex_);
  const uint64_t made = std::min(bytes, bytes_);
  bytes_ -= made;
  admission_->promised_bytes_ -= made;
}

void Admission::Hold::End() {
  if (admission_ == nullptr) return;
  const std::lock_guard lock(admission_->mutex_);
  admission_->promised_bytes_ -= bytes_;
}

uint64_t Admission::promised_bytes() const {
  const std::lock_guard lock(mutex_);
  return promised_bytes_;
}

}  // namespace geminid::memory
