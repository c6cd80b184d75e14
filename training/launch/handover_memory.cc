#include "training/launch/handover_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "base/system_error.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kRecordBytes = 4096;  // a page of its own, before the state

}  // namespace

// Of zeros where nothing was handed over.
struct HandoverMemory::Record {
  std::atomic<uint64_t> complete;  // the number of the handover whose state is there; 0: none is
  std::atomic<uint64_t> untold;    // its request
  uint64_t last;                   // number, of a handover that began
  uint64_t request;
  uint64_t step;
  uint64_t bytes;
  int64_t began_ns;
  int32_t ranks_before;
  int32_t ranks_after;
  int32_t share_least;  // 0: the daemon does not change the number of ranks
  int32_t share_most;
  struct Timed {
    int32_t ranks;  // 0: none, and none follows
    double sequence_seconds;
  } timed[kNumbersTimed];
};

HandoverMemory::HandoverMemory(base::UniqueFd fd, base::Mapping record)
    : fd_(std::move(fd)), record_(std::move(record)) {
  static_assert(sizeof(Record) <= kRecordBytes);
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
}

HandoverMemory::Record& HandoverMemory::record() const {
  return *reinterpret_cast<Record*>(record_.data());
}

absl::StatusOr<std::unique_ptr<HandoverMemory>> HandoverMemory::Create() {
  constexpr unsigned kNoExecSeal = 0x0008u;  // MFD_NOEXEC_SEAL of Linux 6.3, which may be demanded
  constexpr char kName[] = "geminid-handover";
  base::UniqueFd fd(memfd_create(kName, MFD_CLOEXEC | kNoExecSeal));
  if (!fd.valid() && errno == EINVAL) fd = base::UniqueFd(memfd_create(kName, MFD_CLOEXEC));
  if (!fd.valid()) return base::SystemError(errno, "memfd_create", "the memory for a handover");
  if (ftruncate(fd.get(), kRecordBytes) != 0) {
    return base::SystemError(errno, "ftruncate", "the memory for a handover");
  }
  GEMINID_ASSIGN_OR_RETURN(base::Mapping record, base::Mapping::Map(fd, kRecordBytes));
  return std::unique_ptr<HandoverMemory>(new HandoverMemory(std::move(fd), std::move(record)));
}

std::unique_ptr<HandoverMemory> HandoverMemory::From(const collectives::Environment& environment) {
  const char* const text = environment(kHandoverVariable);
  int number = -1;
  if (text == nullptr || !absl::SimpleAtoi(text, &number)) return nullptr;
  if (fcntl(number, F_SETFD, FD_CLOEXEC) != 0) return nullptr;
  base::UniqueFd fd(number);
  absl::StatusOr<base::Mapping> record = base::Mapping::Map(fd, kRecordBytes);
  if (!record.ok()) return nullptr;
  return std::unique_ptr<HandoverMemory>(new HandoverMemory(std::move(fd), *std::move(record)));
}

std::optional<Handover> HandoverMemory::complete() const {
  const Record& is = record();
  const uint64_t number = is.complete.load(std::memory_order_acquire);
  if (number == 0) return std::nullopt;
  return Handover{.number = number,
                  .request = is.request,
                  .ranks_before = is.ranks_before,
                  .ranks_after = is.ranks_after,
                  .step = is.step,
                  .bytes = is.bytes,
                  .began = absl::FromUnixNanos(is.began_ns)};
}

uint64_t HandoverMemory::untold_request() const { return record().untold.load(); }

absl::Status HandoverMemory::Begin(Handover handover, uint64_t available_bytes) {
  const auto too_much = [&](const std::string& why) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the state of the run needs ", base::FormatBytes(handover.bytes),
        " of shared memory while the number of ranks changes, and ", why,
        "; free memory, or save a checkpoint and resume it with ", handover.ranks_after, " ranks"));
  };
  Release();
  if (handover.bytes > available_bytes) {
    return too_much(absl::StrCat("this machine has ", base::FormatBytes(available_bytes), " left"));
  }
  Record& is = record();
  is.untold.store(handover.request);
  is.last += 1;
  is.request = handover.request;
  is.step = handover.step;
  is.bytes = handover.bytes;
  is.began_ns = absl::ToUnixNanos(handover.began);
  is.ranks_before = handover.ranks_before;
  is.ranks_after = handover.ranks_after;
  const auto whole = static_cast<off_t>(kRecordBytes + handover.bytes);
  // With its pages: a page that is missing later would be a SIGBUS.
  if (base::RetryOnEintr([&] { return fallocate(fd_.get(), 0, 0, whole); }) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  Release();
  return too_much(base::SystemError(error, "fallocate", "a memfd").ToString());
}

absl::StatusOr<base::Mapping> HandoverMemory::Map(uint64_t bytes) const {
  return base::Mapping::Map(fd_, kRecordBytes + bytes);
}

std::span<std::byte> HandoverMemory::StateIn(const base::Mapping& mapping) {
  return {mapping.data() + kRecordBytes, mapping.bytes() - kRecordBytes};
}

void HandoverMemory::Complete() {
  record().complete.store(record().last, std::memory_order_release);
}

void HandoverMemory::NoteTold() { record().untold.store(0); }

void HandoverMemory::Release() {
  record().complete.store(0, std::memory_order_release);
  // Should it fail, the memory goes with the launcher.
  (void)!ftruncate(fd_.get(), kRecordBytes);
}

void HandoverMemory::SetShare(const RanksRange& range) {
  record().share_least = range.least;
  record().share_most = range.most;
}

std::optional<RanksRange> HandoverMemory::share() const {
  if (record().share_least == 0) return std::nullopt;
  return RanksRange{record().share_least, record().share_most};
}

void HandoverMemory::NoteSequenceSeconds(int ranks, double seconds) {
  for (Record::Timed& timed : record().timed) {
    if (timed.ranks != 0 && timed.ranks != ranks) continue;
    timed = {ranks, seconds};
    return;
  }
}

std::map<int, double> HandoverMemory::SequenceSeconds() const {
  std::map<int, double> seconds;
  for (const Record::Timed& timed : record().timed) {
    if (timed.ranks != 0) seconds[timed.ranks] = timed.sequence_seconds;
  }
  return seconds;
}

}  // namespace geminid::trainer
