#include "training/launch/handover_memory.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/counted.h"
#include "base/status_macros.h"
#include "base/system_error.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kRecordBytes = 4096;  // a page of its own, before the state
constexpr size_t kHostBytes = 256;       // including the final zero, like all texts of the record
constexpr size_t kDataBytes = 128;
constexpr size_t kWordsBytes = 512;
constexpr size_t kWhyBytes = 1024;

template <size_t kBytes>
void Put(const std::string& text, char (&to)[kBytes]) {
  const size_t bytes = std::min(text.size(), kBytes - 1);
  std::memcpy(to, text.data(), bytes);
  to[bytes] = 0;
}

template <size_t kBytes>
std::string Get(const char (&from)[kBytes]) {
  return std::string(from, strnlen(from, kBytes));
}

// A descriptor that this process inherited; none if the variable has none. Programs that this
// process executes do not inherit it.
base::UniqueFd Inherited(const collectives::Environment& environment, const char* variable) {
  const char* const text = environment(variable);
  int number = -1;
  if (text == nullptr || !absl::SimpleAtoi(text, &number)) return base::UniqueFd();
  if (fcntl(number, F_SETFD, FD_CLOEXEC) != 0) return base::UniqueFd();
  return base::UniqueFd(number);
}

}  // namespace

// All zeros before the first handover.
struct HandoverMemory::Record {
  std::atomic<uint64_t> complete;  // the number of the handover whose state is complete; 0: none
  std::atomic<uint64_t> untold;    // the request whose outcome nobody was told; 0: none
  uint64_t last;                   // the number of the last handover that began
  uint64_t request;
  uint64_t step;
  uint64_t bytes;
  int64_t began_ns;
  int32_t ranks_before;
  int32_t ranks_after;
  int32_t share_least;  // 0: the daemon does not change the number of ranks
  int32_t share_most;
  std::atomic<uint32_t> followed;
  char host[kHostBytes];
  char words[kWordsBytes];
  struct Wanted {
    std::atomic<uint64_t> request;  // 0: no request
    uint64_t state_bytes;
    uint64_t rank_device_bytes;
    uint64_t host_bytes;
    int32_t ranks;
    char host[kHostBytes];
    char data[kDataBytes];
  } wanted;
  struct Answered {
    std::atomic<uint64_t> request;  // 0: no answer
    int32_t code;
    char why[kWhyBytes];
  } answered;
  struct Timed {
    int32_t ranks;  // 0: the list ends here
    double sequence_seconds;
  } timed[kNumbersTimed];
  uint64_t held_bytes;  // of the state's bytes those that have pages
};

HandoverMemory::HandoverMemory(base::UniqueFd fd, base::UniqueFd wake, base::Mapping record)
    : fd_(std::move(fd)), wake_(std::move(wake)), record_(std::move(record)) {
  static_assert(sizeof(Record) <= kRecordBytes);
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
}

HandoverMemory::Record& HandoverMemory::record() const {
  return *reinterpret_cast<Record*>(record_.data());
}

absl::StatusOr<std::unique_ptr<HandoverMemory>> HandoverMemory::Create() {
  constexpr unsigned kNoExecSeal = 0x0008u;  // MFD_NOEXEC_SEAL of Linux 6.3, which may be required
  constexpr char kName[] = "geminid-handover";
  base::UniqueFd fd(memfd_create(kName, MFD_CLOEXEC | kNoExecSeal));
  if (!fd.valid() && errno == EINVAL) fd = base::UniqueFd(memfd_create(kName, MFD_CLOEXEC));
  if (!fd.valid()) return base::SystemError(errno, "memfd_create", "the memory for a handover");
  if (ftruncate(fd.get(), kRecordBytes) != 0) {
    return base::SystemError(errno, "ftruncate", "the memory for a handover");
  }
  base::UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return base::SystemError(errno, "eventfd", "for a handover");
  GEMINID_ASSIGN_OR_RETURN(base::Mapping record, base::Mapping::Map(fd, kRecordBytes));
  return std::unique_ptr<HandoverMemory>(
      new HandoverMemory(std::move(fd), std::move(wake), std::move(record)));
}

std::unique_ptr<HandoverMemory> HandoverMemory::From(const collectives::Environment& environment) {
  base::UniqueFd fd = Inherited(environment, kHandoverVariable);
  if (!fd.valid()) return nullptr;
  absl::StatusOr<base::Mapping> record = base::Mapping::Map(fd, kRecordBytes);
  if (!record.ok()) return nullptr;
  return std::unique_ptr<HandoverMemory>(new HandoverMemory(
      std::move(fd), Inherited(environment, kHandoverWakeVariable), *std::move(record)));
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
                  .began = absl::FromUnixNanos(is.began_ns),
                  .host = Get(is.host),
                  .words = Get(is.words),
                  .followed = is.followed.load(std::memory_order_acquire) != 0};
}

uint64_t HandoverMemory::untold_request() const { return record().untold.load(); }

// Of the record but for its numbers and sizes.
void HandoverMemory::Note(const Handover& handover) {
  Record& is = record();
  is.step = handover.step;
  is.began_ns = absl::ToUnixNanos(handover.began);
  is.ranks_before = handover.ranks_before;
  is.ranks_after = handover.ranks_after;
  is.followed.store(0);
  Put(handover.host, is.host);
  Put(handover.words, is.words);
}

uint64_t HandoverMemory::NextNumber() const { return record().last + 1; }

uint64_t HandoverMemory::mapped_bytes() const { return record().bytes; }

uint64_t HandoverMemory::held_bytes() const { return record().held_bytes; }

absl::Status HandoverMemory::Begin(Handover handover, uint64_t available_bytes) {
  handover.number = NextNumber();
  return BeginParts(handover, {{.offset = 0, .bytes = handover.bytes}}, available_bytes);
}

absl::Status HandoverMemory::BeginParts(const Handover& handover,
                                        const std::vector<StatePart>& parts,
                                        uint64_t available_bytes) {
  record().untold.store(handover.request);
  if (const absl::Status made = MakePages(handover.bytes, parts, available_bytes); !made.ok()) {
    return absl::Status(made.code(), absl::StrCat(std::string(made.message()),
                                                  "; free memory, or save a checkpoint and resume "
                                                  "it with ",
                                                  base::Counted(handover.ranks_after, "rank")));
  }
  Record& is = record();
  is.last = handover.number;
  is.request = handover.request;
  Note(handover);
  return absl::OkStatus();
}

void HandoverMemory::Adopt(const std::optional<Handover>& handover) {
  Record& is = record();
  if (!handover.has_value()) {
    if (is.complete.load() == 0) return;
    // The store comes last: ranks begin to leave other state here once it is made.
    is.bytes = is.held_bytes = 0;
    (void)!ftruncate(fd_.get(), kRecordBytes);
    is.complete.store(0, std::memory_order_release);
    return;
  }
  if (is.complete.load() == handover->number) return;
  if (is.last != handover->number) Release();
  is.last = handover->number;
  is.request = 0;
  Note(*handover);
  Complete();
}

absl::Status HandoverMemory::Reserve(uint64_t bytes, uint64_t available_bytes) {
  return MakePages(bytes, {{.offset = 0, .bytes = bytes}}, available_bytes);
}

absl::Status HandoverMemory::Arrive(const Handover& handover, uint64_t available_bytes) {
  if (record().bytes != handover.bytes) {
    GEMINID_RETURN_IF_ERROR(Reserve(handover.bytes, available_bytes));
  }
  record().complete.store(0);
  record().untold.store(0);  // the host where the request was made tells its outcome
  record().last = handover.number;
  record().request = 0;
  Handover here = handover;
  here.host.clear();
  Note(here);
  return absl::OkStatus();
}

// Whatever was there is gone.
absl::Status HandoverMemory::MakePages(uint64_t bytes, const std::vector<StatePart>& parts,
                                       uint64_t available_bytes) {
  Release();
  uint64_t held = 0;
  for (const StatePart& part : parts) held += part.bytes;
  const auto too_much = [&](const std::string& why) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the state of the run needs ", base::FormatBytes(held),
                     " of shared memory while it is handed over, and ", why));
  };
  if (held > available_bytes) {
    return too_much(absl::StrCat("this machine has ", base::FormatBytes(available_bytes), " left"));
  }
  const int fd = fd_.get();
  int failed = ftruncate(fd, static_cast<off_t>(kRecordBytes + bytes));
  // With their pages: a page that is missing later would be a SIGBUS.
  for (const StatePart& part : parts) {
    if (failed != 0 || part.bytes == 0) continue;
    const auto begin = static_cast<off_t>(kRecordBytes + part.offset);
    failed =
        base::RetryOnEintr([&] { return fallocate(fd, 0, begin, static_cast<off_t>(part.bytes)); });
  }
  if (failed == 0) {
    record().bytes = bytes;
    record().held_bytes = held;
    return absl::OkStatus();
  }
  const int error = errno;
  Release();
  return too_much(base::SystemError(error, "fallocate", "a memfd").ToString());
}

absl::StatusOr<base::Mapping> HandoverMemory::Map(uint64_t bytes) const {
  struct stat file = {};
  // Access to a missing page would raise SIGBUS.
  if (fstat(fd_.get(), &file) != 0 || file.st_size < static_cast<off_t>(kRecordBytes) ||
      static_cast<uint64_t>(file.st_size) - kRecordBytes < bytes) {
    return absl::DataLossError(absl::StrCat("the memory of a handover has less than the ",
                                            base::FormatBytes(bytes), " that it is said to have"));
  }
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
  record().bytes = record().held_bytes = 0;
  // Should it fail, the memory goes with the launcher.
  (void)!ftruncate(fd_.get(), kRecordBytes);
  Wake();
}

void HandoverMemory::TakeWake() {
  uint64_t count = 0;
  (void)!read(wake_.get(), &count, sizeof(count));
}

void HandoverMemory::Wake() const {
  constexpr uint64_t kOne = 1;
  if (wake_.valid()) (void)!write(wake_.get(), &kOne, sizeof(kOne));
}

void HandoverMemory::Want(const MoveRequest& move) {
  Record::Wanted& is = record().wanted;
  record().answered.request.store(0);
  is.state_bytes = move.state_bytes;
  is.rank_device_bytes = move.rank_device_bytes;
  is.host_bytes = move.host_bytes;
  is.ranks = move.ranks;
  Put(move.host, is.host);
  Put(move.data, is.data);
  is.request.store(move.request, std::memory_order_release);
  Wake();
}

void HandoverMemory::Unwant() {
  record().wanted.request.store(0);
  Wake();
}

std::optional<MoveRequest> HandoverMemory::wanted() const {
  const Record::Wanted& is = record().wanted;
  const uint64_t request = is.request.load(std::memory_order_acquire);
  if (request == 0) return std::nullopt;
  MoveRequest move = {.request = request,
                      .host = Get(is.host),
                      .ranks = is.ranks,
                      .state_bytes = is.state_bytes,
                      .rank_device_bytes = is.rank_device_bytes,
                      .host_bytes = is.host_bytes,
                      .data = Get(is.data)};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (is.request.load() != request) return std::nullopt;  // it has changed; another wake follows
  return move;
}

void HandoverMemory::Answer(uint64_t request, const absl::Status& status) {
  Record::Answered& is = record().answered;
  is.request.store(0);
  is.code = status.raw_code();
  Put(std::string(status.message()), is.why);
  is.request.store(request, std::memory_order_release);
}

std::optional<absl::Status> HandoverMemory::answer(uint64_t request) const {
  const Record::Answered& is = record().answered;
  if (is.request.load(std::memory_order_acquire) != request) return std::nullopt;
  return absl::Status(static_cast<absl::StatusCode>(is.code), Get(is.why));
}

void HandoverMemory::NoteFollowed() {
  record().followed.store(1, std::memory_order_release);
  Wake();
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
