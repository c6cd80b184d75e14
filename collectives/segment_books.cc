#include "collectives/segment_books.h"

#include <utility>

#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

// Calls `end` when the last owner has released the result.
template <typename End>
std::shared_ptr<void> AtTheEnd(End end) {
  return std::shared_ptr<void>(nullptr, [end = std::move(end)](void*) { end(); });
}

}  // namespace

absl::Status SegmentBooks::Charge(Entry& entry) {
  GEMINID_ASSIGN_OR_RETURN(entry.charge, charger_(entry.name, entry.bytes));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<void>> SegmentBooks::Enter(const std::string& name, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Entry entry{.name = name, .bytes = bytes, .charge = nullptr};
  if (charger_ != nullptr) GEMINID_RETURN_IF_ERROR(Charge(entry));
  const uint64_t number = ++last_;
  entries_.emplace(number, std::move(entry));
  return AtTheEnd([books = shared_from_this(), number] { books->Remove(number); });
}

absl::StatusOr<std::shared_ptr<void>> SegmentBooks::ChargeBy(SegmentCharger charger) {
  const std::lock_guard lock(mutex_);
  if (charger_ != nullptr) return nullptr;
  charger_ = std::move(charger);
  for (auto& [number, entry] : entries_) {
    absl::Status status = Charge(entry);
    if (status.ok()) continue;
    for (auto& [other, charged] : entries_) charged.charge.reset();
    charger_ = nullptr;
    return status;
  }
  return AtTheEnd([books = shared_from_this()] { books->StopCharging(); });
}

void SegmentBooks::Remove(uint64_t number) {
  const std::lock_guard lock(mutex_);
  entries_.erase(number);
}

void SegmentBooks::StopCharging() {
  const std::lock_guard lock(mutex_);
  for (auto& [number, entry] : entries_) entry.charge.reset();
  charger_ = nullptr;
}

}  // namespace geminid::collectives
