#include "client/zero/residency/offloaded_activations.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/status_macros.h"

namespace geminid::zero {
namespace {

constexpr uint32_t kFewestPlaces = 2;  // one is written while the other one is read

absl::Status OutOfTurn(const char* call, uint32_t item, const char* why) {
  return absl::FailedPreconditionError(
      absl::StrCat("ActivationStack::", call, ": item ", item, " ", why));
}

}  // namespace

absl::Status CheckActivationShape(const ActivationShape& shape) {
  if (shape.item_bytes.empty()) {
    return absl::InvalidArgumentError("ActivationShape::item_bytes is empty; give each item's");
  }
  const auto empty = std::ranges::find(shape.item_bytes, 0u);
  if (empty != shape.item_bytes.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ActivationShape::item_bytes[", empty - shape.item_bytes.begin(), "] is 0; leave it out"));
  }
  if (shape.places < std::min<size_t>(kFewestPlaces, shape.item_bytes.size()) ||
      shape.places > shape.item_bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("ActivationShape::places is ", shape.places, ", and must be from ",
                     kFewestPlaces, " to the number of items, ", shape.item_bytes.size()));
  }
  return absl::OkStatus();
}

uint64_t PlaceBytes(const ActivationShape& shape) {
  return *std::ranges::max_element(shape.item_bytes);
}

OffloadedActivations::OffloadedActivations(Session* session, ActivationShape shape, Stream* stream,
                                           absl::Duration timeout)
    : session_(*session),
      shape_(std::move(shape)),
      stream_(stream),
      timeout_(timeout),
      guard_(std::make_shared<CallbackGuard<OffloadedActivations>>(this)),
      items_(shape_.item_bytes.size()) {}

absl::StatusOr<std::unique_ptr<OffloadedActivations>> OffloadedActivations::Create(
    Session* session, ActivationShape shape, Stream* stream, absl::Duration timeout) {
  std::unique_ptr<OffloadedActivations> made(
      new OffloadedActivations(session, std::move(shape), stream, timeout));
  GEMINID_RETURN_IF_ERROR(made->AllocateHomes());
  return made;
}

OffloadedActivations::~OffloadedActivations() {
  {
    Lock lock(mutex_);
    Await(
        &lock, [this] { return !AnyOnItsWay(); }, "to end")
        .IgnoreError();
  }
  guard_->End();
  std::vector<ChunkId> homes;
  for (const Item& item : items_) {
    if (item.home != kNoChunk) homes.push_back(item.home);
  }
  session_.Free(homes).IgnoreError();  // chunks that cannot be freed end with the session
}

absl::Status OffloadedActivations::AllocateHomes() {
  std::vector<ChunkSpec> specs;
  for (uint32_t i = 0; leaves(i); ++i) {
    specs.push_back({absl::StrCat("activations ", i), ChunkKind::kGeneric, shape_.item_bytes[i]});
  }
  if (specs.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkHandle> homes, session_.Allocate(specs));
  for (size_t i = 0; i < homes.size(); ++i) {
    items_[i].home = homes[i].id;
    session_.Transition(homes[i].id, ChunkState::kHold);
  }
  return absl::OkStatus();
}

bool OffloadedActivations::AnyOnItsWay() const {
  return std::ranges::any_of(items_, [](const Item& item) {
    return item.where == Where::kLeaving || item.where == Where::kComing;
  });
}

absl::Status OffloadedActivations::Await(Lock* lock, const std::function<bool()>& ready,
                                         const char* what) {
  if (!status_.ok() || ready()) return status_;
  const absl::Time began = base::MonotonicNow();
  while (status_.ok() && !ready()) {
    const uint64_t before = copies_ended_;
    const auto deadline = base::Deadline::In(timeout_);
    const auto moved = [&] { return copies_ended_ != before || !status_.ok() || ready(); };
    if (changed_.wait_until(*lock, deadline.time(), moved)) continue;
    status_.Update(absl::DeadlineExceededError(
        absl::StrCat("no copy of activations has ended within ", absl::FormatDuration(timeout_),
                     ", while the trainer waits for one ", what)));
  }
  session_.AddStall(StallCause::kCopy, base::MonotonicNow() - began);
  return status_;
}

absl::Status OffloadedActivations::Begin() {
  Lock lock(mutex_);
  GEMINID_RETURN_IF_ERROR(Await(
      &lock, [this] { return !AnyOnItsWay(); }, "of the last micro-batch"));
  for (Item& item : items_) item.where = Where::kNowhere;
  depth_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> OffloadedActivations::Push() {
  Lock lock(mutex_);
  if (depth_ == items()) return OutOfTurn("Push", depth_, "is one more than the stack has");
  if (depth_ >= shape_.places) {
    Item& before = items_[depth_ - shape_.places];
    if (before.where == Where::kPlace) {
      return OutOfTurn("Push", depth_ - shape_.places, "has that place and is not Written");
    }
    GEMINID_RETURN_IF_ERROR(Await(
        &lock, [&] { return before.where == Where::kPlaceAndHost; }, "to leave its place"));
    before.where = Where::kHost;
  }
  GEMINID_RETURN_IF_ERROR(status_);
  items_[depth_].where = Where::kPlace;
  return session_.Device(PlaceOf(depth_++));
}

absl::Status OffloadedActivations::Written(uint32_t item) {
  {
    const Lock lock(mutex_);
    if (item >= depth_ || items_[item].where != Where::kPlace) {
      return OutOfTurn("Written", item, "is not in its place");
    }
    if (!leaves(item)) return status_;
    items_[item].where = Where::kLeaving;
  }
  Copy(item, /*to_device=*/false);
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> OffloadedActivations::Top() {
  Lock lock(mutex_);
  if (depth_ == 0) return OutOfTurn("Top", 0, "is not on the stack");
  const Item& item = items_[depth_ - 1];
  const auto here = [&] {
    return item.where == Where::kPlace || item.where == Where::kPlaceAndHost;
  };
  GEMINID_RETURN_IF_ERROR(Await(&lock, here, "to come back"));
  return session_.Device(PlaceOf(depth_ - 1));
}

absl::Status OffloadedActivations::Pop() {
  uint32_t next = 0;
  {
    const Lock lock(mutex_);
    if (depth_ == 0) return OutOfTurn("Pop", 0, "is not on the stack");
    const Where where = items_[depth_ - 1].where;
    if (where == Where::kLeaving || where == Where::kComing) {
      return OutOfTurn("Pop", depth_ - 1, "is on its way; call Top first");
    }
    items_[--depth_].where = Where::kNowhere;
    if (depth_ < shape_.places) return status_;
    next = depth_ - shape_.places;
    if (items_[next].where != Where::kHost) return status_;
    items_[next].where = Where::kComing;
  }
  Copy(next, /*to_device=*/true);
  return absl::OkStatus();
}

void OffloadedActivations::After(std::function<void()> act) const {
  if (stream_ == nullptr) return act();
  stream_->CallBack(std::move(act));
}

// An item that comes back is needed within a few operators, so its copy is urgent; others are not.
void OffloadedActivations::Copy(uint32_t item, bool to_device) {
  TransferSpec spec;
  spec.source = to_device ? items_[item].home : PlaceOf(item);
  spec.destination = to_device ? PlaceOf(item) : items_[item].home;
  spec.bytes = shape_.item_bytes[item];
  spec.priority = to_device ? Priority::kUrgent : Priority::kNormal;
  spec.cause = to_device ? TransferCause::kPrefetch : TransferCause::kWriteBack;
  After([guard = guard_, session = &session_, spec, item, to_device] {
    guard->Run([&](OffloadedActivations* /*stack*/) {
      session->Transfer(spec).Then([guard, item, to_device](const absl::Status& status) {
        guard->Run([&](OffloadedActivations* stack) { stack->CopyEnded(item, to_device, status); });
      });
    });
  });
}

void OffloadedActivations::CopyEnded(uint32_t item, bool to_device, const absl::Status& status) {
  {
    const Lock lock(mutex_);
    items_[item].where = to_device ? Where::kPlace : Where::kPlaceAndHost;
    if (to_device) {
      returned_bytes_.fetch_add(shape_.item_bytes[item], std::memory_order_relaxed);
    }
    if (!status.ok() && status_.ok()) {
      status_ = absl::Status(status.code(),
                             absl::StrCat("activations could not be copied ",
                                          to_device ? "to the device: " : "to host memory: ",
                                          std::string(status.message())));
    }
    ++copies_ended_;
  }
  changed_.notify_all();
}

}  // namespace geminid::zero
