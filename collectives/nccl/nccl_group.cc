#include "collectives/nccl/nccl_group.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "gpu/driver.h"

namespace geminid::collectives {
namespace {

using gpu::NcclResult;

// Pauses while the GPU works: they notice its end soon, and leave the processor to others.
constexpr std::chrono::microseconds kFirstSleep{5};
constexpr std::chrono::microseconds kLongestSleep{200};
// Between checks of the peers; far below the 2 s within which a death must be reported.
constexpr std::chrono::milliseconds kWatch{20};
// NCCL often notices a death before the rank is known that died.
constexpr absl::Duration kPatienceForAName = absl::Milliseconds(500);
// For peers that end as well, and for a stream whose work was aborted.
constexpr absl::Duration kPatienceAtTheEnd = absl::Milliseconds(500);

}  // namespace

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Create(const NcclPlace& place,
                                                             const gpu::NcclApi* nccl,
                                                             const gpu::NcclId& id, int rank,
                                                             int world_size, absl::Duration timeout,
                                                             Watch watch) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(place, nccl, std::move(watch)));
  const Scope scope(place);
  GEMINID_RETURN_IF_ERROR(group->MakeStream());
  gpu::NcclConfig config;
  const NcclResult result = nccl->comm_init(&group->comm_, world_size, id, rank, &config);
  if (result != NcclResult::kSuccess && result != NcclResult::kInProgress) {
    group->comm_ = nullptr;
    return group->ErrorOf(result, "ncclCommInitRankConfig");
  }
  GEMINID_RETURN_IF_ERROR(group->AwaitReady("ncclCommInitRankConfig", timeout));
  return group;
}

absl::Status NcclGroup::MakeStream() {
  const gpu::DriverApi& driver = *place_.driver;
  GEMINID_RETURN_IF_ERROR(
      Check(driver.stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  return Check(driver.event_create(&passed_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

NcclGroup::~NcclGroup() {
  TellNothing();
  const Scope scope(place_);
  if (comm_ != nullptr) {
    const NcclResult result = nccl_->comm_finalize(comm_);
    const bool begun = result == NcclResult::kSuccess || result == NcclResult::kInProgress;
    if (begun && AwaitReady("ncclCommFinalize", kPatienceAtTheEnd).ok()) {
      nccl_->comm_destroy(comm_);
    } else if (comm_ != nullptr) {
      nccl_->comm_abort(comm_);
    }
  }
  const gpu::DriverApi& driver = *place_.driver;
  if (rows_.place != 0) driver.mem_free(rows_.place);
  if (passed_ != nullptr) driver.event_destroy(passed_);
  if (stream_ != nullptr) driver.stream_destroy(stream_);
}

absl::Status NcclGroup::Check(CUresult result, const char* call) const {
  return gpu::ToStatus(*place_.driver, result, absl::StrCat("NCCL's GPU: ", call));
}

absl::Status NcclGroup::ErrorOf(NcclResult result, const std::string& what) {
  const char* const more = nccl_->last_error(comm_);
  const std::string words =
      absl::StrCat("NCCL: ", what, ": ", nccl_->error_string(result),
                   more != nullptr && *more != '\0' ? "; " : "", more == nullptr ? "" : more);
  return result == NcclResult::kRemoteError ? absl::UnavailableError(words)
                                            : absl::InternalError(words);
}

absl::StatusOr<std::byte*> NcclGroup::Grow(size_t bytes, Room* room) {
  if (bytes <= room->bytes) return room->span().data();
  Deregister(room->span());
  const Scope scope(place_);
  const gpu::DriverApi& driver = *place_.driver;
  if (room->place != 0) GEMINID_RETURN_IF_ERROR(Check(driver.mem_free(room->place), "cuMemFree"));
  *room = {};
  GEMINID_RETURN_IF_ERROR(Check(driver.mem_alloc(&room->place, bytes), "cuMemAlloc"));
  room->bytes = bytes;
  Register(room->span());
  if (MayGive(room->span())) return room->span().data();
  return absl::UnavailableError(absl::StrCat("NCCL: ncclCommRegister refused ", bytes,
                                             " bytes after it accepted other memory; set "
                                             "NCCL_LOCAL_REGISTER=0 to run without registration"));
}

bool NcclGroup::TellAll(size_t staging_bytes) {
  if (place_.buffers == nullptr || nccl_->comm_register == nullptr) return false;
  tells_ = true;
  Register(rows_.span());
  const bool has_room = MayGive(rows_.span()) && Staging(staging_bytes).ok();
  return place_.buffers->Join(this) && has_room;
}

void NcclGroup::TellNothing() {
  if (place_.buffers != nullptr) place_.buffers->Leave(this);
  Deregister(rows_.span());
  Deregister(staging_.span());
  tells_ = false;
  const Scope scope(place_);
  if (staging_.place != 0) place_.driver->mem_free(std::exchange(staging_, {}).place);
}

bool NcclGroup::MayGive(std::span<const std::byte> memory) const {
  if (!tells_ || memory.empty()) return true;
  const std::lock_guard lock(calls_);
  auto behind = registered_.upper_bound(memory.data());
  if (behind == registered_.begin()) return false;
  const auto& [begin, range] = *--behind;
  return memory.data() + memory.size() <= begin + range.bytes;
}

bool NcclGroup::Register(std::span<std::byte> memory) {
  const std::lock_guard lock(calls_);
  if (!tells_ || comm_ == nullptr || memory.empty()) return memory.empty();
  const Scope scope(place_);
  void* handle = nullptr;
  const NcclResult result = nccl_->comm_register(comm_, memory.data(), memory.size(), &handle);
  // A null handle without an error: registration is switched off (NCCL_LOCAL_REGISTER).
  if (result != NcclResult::kSuccess || handle == nullptr) return false;
  registered_[memory.data()] = {.bytes = memory.size(), .handle = handle};
  registered_bytes_ += memory.size();
  return true;
}

void NcclGroup::Deregister(std::span<std::byte> memory) {
  const std::lock_guard lock(calls_);
  const auto found = registered_.find(memory.data());
  if (found == registered_.end()) return;
  const Scope scope(place_);
  nccl_->comm_deregister(comm_, found->second.handle);
  registered_bytes_ -= found->second.bytes;
  registered_.erase(found);
}

absl::Status NcclGroup::InGroup(const Operation& operation, absl::Duration timeout,
                                const std::function<NcclResult()>& queue) {
  return OnStream(operation, timeout, [&] {
    const std::string what = Describe(operation);
    const auto is_bad = [](NcclResult result) {
      return result != NcclResult::kSuccess && result != NcclResult::kInProgress;
    };
    if (const NcclResult result = nccl_->group_start(); is_bad(result)) {
      return ErrorOf(result, what);
    }
    const NcclResult queued = queue();
    const NcclResult ended = nccl_->group_end();
    for (const NcclResult result : {queued, ended}) {
      if (is_bad(result)) return ErrorOf(result, what);
    }
    return AwaitReady(what, timeout);
  });
}

absl::Status NcclGroup::OnStream(const Operation& operation, absl::Duration timeout,
                                 const std::function<absl::Status()>& queue) {
  const std::lock_guard lock(calls_);
  const Scope scope(place_);
  absl::Status status = queue();
  if (status.ok()) status = AwaitStream(operation, timeout);
  return status.ok() ? status : Abort(status);
}

absl::Status NcclGroup::AwaitReady(const std::string& what, absl::Duration timeout) {
  // Await queries NCCL's state each time.
  return Await(what, timeout, [this, &what]() -> absl::StatusOr<bool> {
    NcclResult state = NcclResult::kSuccess;
    const NcclResult asked = nccl_->comm_async_error(comm_, &state);
    if (asked != NcclResult::kSuccess) return ErrorOf(asked, what);
    return state != NcclResult::kInProgress;
  });
}

absl::Status NcclGroup::AwaitStream(const Operation& operation, absl::Duration timeout) {
  const gpu::DriverApi& driver = *place_.driver;
  GEMINID_RETURN_IF_ERROR(Check(driver.event_record(passed_, stream_), "cuEventRecord"));
  return Await(Describe(operation), timeout, [&]() -> absl::StatusOr<bool> {
    const CUresult result = driver.event_query(passed_);
    if (result == CUDA_ERROR_NOT_READY) return false;
    GEMINID_RETURN_IF_ERROR(Check(result, "cuEventQuery"));
    // An event is also ready when the device is lost.
    GEMINID_RETURN_IF_ERROR(Check(driver.stream_query(stream_), "cuStreamQuery"));
    return true;
  });
}

absl::Status NcclGroup::Await(const std::string& what, absl::Duration timeout,
                              const std::function<absl::StatusOr<bool>()>& is_done) {
  base::Deadline deadline = base::Deadline::In(timeout);
  base::Deadline next_watch = base::Deadline::In(absl::FromChrono(kWatch));
  absl::Status failure;  // of NCCL; a peer's death may still explain it
  std::chrono::microseconds sleep = kFirstSleep;
  while (true) {
    if (failure.ok()) {
      NcclResult state = NcclResult::kSuccess;
      const NcclResult asked =
          comm_ == nullptr ? NcclResult::kSuccess : nccl_->comm_async_error(comm_, &state);
      if (asked != NcclResult::kSuccess) state = asked;
      if (state != NcclResult::kSuccess && state != NcclResult::kInProgress) {
        failure = ErrorOf(state, what);
        deadline = base::Deadline::In(kPatienceForAName);
      } else {
        GEMINID_ASSIGN_OR_RETURN(const bool done, is_done());
        if (done) return absl::OkStatus();
      }
    }
    if (!failure.ok() || next_watch.Passed()) {
      GEMINID_RETURN_IF_ERROR(watch_());
      next_watch = base::Deadline::In(absl::FromChrono(kWatch));
    }
    if (deadline.Passed()) {
      if (!failure.ok()) return failure;
      return absl::DeadlineExceededError(
          absl::StrCat("NCCL: ", what, ": not done within ", absl::FormatDuration(timeout),
                       " although all ranks take part; see the output with NCCL_DEBUG=INFO"));
    }
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, kLongestSleep);
  }
}

absl::Status NcclGroup::Abort(const absl::Status& status) {
  if (comm_ != nullptr) nccl_->comm_abort(std::exchange(comm_, nullptr));
  registered_.clear();  // NCCL has dropped the registrations
  registered_bytes_ = 0;
  // NCCL's kernels end when it is aborted.
  const gpu::DriverApi& driver = *place_.driver;
  const base::Deadline deadline = base::Deadline::In(kPatienceAtTheEnd);
  while (driver.stream_query(stream_) == CUDA_ERROR_NOT_READY && !deadline.Passed()) {
    std::this_thread::sleep_for(kLongestSleep);
  }
  return status;
}

}  // namespace geminid::collectives
