// The books of one session: the state that a restarted daemon needs, beside the manifest, to serve
// the session again. No client ever sees this memory.
//
//   +-------------+------------+----------------------------+--------------------------+
//   | BooksHeader | JobRecord  | TransferRecord[kTransfers] | name[kMaxChunks]         |
//   | what is     | what it    | 128 B each: every transfer | 128 B each, zero-padded  |
//   | fixed, and  | asked for  | that was taken and is not  |                          |
//   | single words|            | done                       |                          |
//   +-------------+------------+----------------------------+--------------------------+
//
// Pages that were never written take no memory. Each change is the store of one word: a transfer,
// for example, exists from the store of its `place` until that word is cleared. So wherever the
// daemon dies, the books describe one state of the session. The fixed part is written once, with a
// CRC-32C, and `magic` last.
#ifndef GEMINID_DAEMON_CORE_RECORDS_SESSION_BOOKS_H_
#define GEMINID_DAEMON_CORE_RECORDS_SESSION_BOOKS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/basics/ids.h"
#include "daemon/core/basics/time.h"
#include "daemon/core/jobs/job_queue.h"
#include "daemon/core/records/session_spec.h"
#include "daemon/core/transfers/transfer_scheduler.h"
#include "proto/shm/attach_messages.h"

namespace geminid::core {

inline constexpr uint32_t kBooksMagic = 0x4b4f4247;  // "GBOK"
inline constexpr uint32_t kBooksVersion = 3;
inline constexpr uint32_t kBooksTransfers = 4096 + shm::kMaxTicketsInFlight;
inline constexpr size_t kMaxTenantBytes = 3072;
using SessionToken = std::array<uint8_t, shm::kTokenBytes>;

// The facts that are fixed when the session opens.
struct SessionFacts {
  SessionId id{};
  SessionSpec spec;      // its weight is the one that its job asked for, if it asked
  DeviceIndex device{};  // the one it was given
  Time opened_at;
  SessionToken token{};
};

// The request of a session's job, and its standing.
struct JobNote {
  JobId job{};
  std::string run;
  RankRequest ask;
  uint32_t weight = 1;
  JobState state = JobState::kGathering;
  bool yielded = false;
  bool held = false;  // by the operator
  Time since;
};

// An accepted transfer that is not done: under way if it has a ticket, else waiting.
struct NotedTransfer {
  uint32_t place = 0;  // in the books
  TransferRequest request;
  Time since;  // when it began to wait, or was granted
  TicketId ticket{};
  uint16_t completion_index = 0;
  uint64_t order = 0;  // in which transfers were accepted
};

// A view of memory that must outlive it: Bytes() bytes, aligned to a page, zero when it is new.
// Not thread-safe.
class SessionBooks {
 public:
  static size_t Bytes();

  // Begins the books of a new session. INVALID_ARGUMENT when a text is too long or `memory` too
  // small.
  static absl::StatusOr<SessionBooks> Create(std::span<std::byte> memory,
                                             const SessionFacts& facts);
  // Opens books that an earlier daemon wrote. FAILED_PRECONDITION: a daemon of another release
  // wrote them. DATA_LOSS: they make no sense.
  static absl::StatusOr<SessionBooks> Open(std::span<std::byte> memory);

  absl::StatusOr<SessionFacts> Facts() const;

  // The client was told that it is welcome, and relies on the session from now on.
  void SetWelcomed();
  bool welcomed() const;
  // When the memory of a client that died is freed; nullopt: the client lives.
  void SetKeptUntil(Time until);
  void SetAttached();
  std::optional<Time> KeptUntil() const;
  void SetBarred();  // it attached while the daemon was drained
  bool barred() const;
  void SetArena(uint64_t bytes);  // 0: none
  uint64_t arena_bytes() const;
  void SetWorkspace(uint64_t bytes);
  uint64_t workspace_bytes() const;
  void SetMoment(uint64_t moment);
  uint64_t moment() const;

  void SetJob(const JobNote& note);  // the request; called once
  void SetStanding(JobState state, bool yielded, bool held, Time since);
  void ClearJob();
  std::optional<JobNote> Job() const;

  void SetName(ChunkId chunk, const std::string& name);
  std::string NameOf(ChunkId chunk) const;

  // Records a transfer, and returns its place; nullopt: all places are taken.
  std::optional<uint32_t> AddTransfer(const TransferRequest& request, Time since);
  void Grant(uint32_t place, const Ticket& ticket);
  // Linear in the transfers.
  bool HasTransfer(uint64_t request_id) const;
  void RemoveTransfer(uint32_t place);
  void RemoveAllTransfers();
  // In the order in which they were accepted.
  std::vector<NotedTransfer> Transfers() const;

 private:
  struct Layout;
  explicit SessionBooks(Layout* layout) : layout_(layout) {}
  void CollectFree();

  Layout* layout_;
  std::vector<uint32_t> free_;  // places, the lowest last
  uint64_t next_order_ = 1;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_RECORDS_SESSION_BOOKS_H_
